//! The native form of an answer: its parts as [`NativeItem`]s, and the token of an answer that the service can continue.

use std::borrow::Cow;

use conjure_conversation::{Message, NativeItem, Origin, Role};
use conjure_model_http::quoted;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The beginning of the item with a token. No part of the service has this member.
const TOKEN_START: &str = r#"{"continuationToken":"#;

/// A tool call, as the service wrote it.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionCall<'a> {
    /// The id of the call. Often the service gives none.
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(borrow, default)]
    pub(crate) args: Option<&'a RawValue>,
    /// A piece of the arguments. It only occurs if the request asked for it.
    #[serde(borrow, default, rename = "partialArgs")]
    pub(crate) partial_args: Option<&'a RawValue>,
}

/// A part with a text and nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlainText<'a> {
    #[serde(borrow)]
    pub(crate) text: Cow<'a, str>,
    #[serde(default)]
    pub(crate) thought: Option<bool>,
}

/// A part without data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyPart {
    #[expect(dead_code, reason = "the one member that such a part may have")]
    #[serde(default)]
    thought: Option<bool>,
}

/// The members of a part that the client reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part<'a> {
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) thought: Option<bool>,
    #[serde(borrow, default)]
    pub(crate) function_call: Option<FunctionCall<'a>>,
}

/// The item for joined pieces of text.
pub(crate) fn text_item(text: &str, is_thought: bool) -> String {
    let thought = if is_thought { r#","thought":true"# } else { "" };
    format!("{{\"text\":{}{thought}}}", quoted(text))
}

/// The item that holds a continuation token.
pub(crate) fn token_item(token: &RawValue) -> String {
    format!("{TOKEN_START}{}}}", token.get())
}

/// The parts of an answer of this origin, without tokens. `None` if the message has no native form of this origin.
pub(crate) fn native_parts<'a>(
    message: &'a Message,
    origin: &Origin,
) -> Option<impl Iterator<Item = &'a NativeItem>> {
    let native = message.native.as_ref().filter(|native| native.origin == *origin)?;
    Some(native.items.iter().filter(|item| token_of(item).is_none()))
}

/// The token with which the service continues the last message, as JSON. There is one only if that message is an unfinished answer of this
/// origin.
pub(crate) fn continuation_token<'a>(last: Option<&'a Message>, origin: &Origin) -> Option<&'a str> {
    let last = last.filter(|message| message.role == Role::Assistant)?;
    let native = last.native.as_ref().filter(|native| native.origin == *origin)?;
    token_of(native.items.last()?)
}

fn token_of(item: &NativeItem) -> Option<&str> {
    item.json().strip_prefix(TOKEN_START)?.strip_suffix('}')
}

/// The name and the id of each call among these parts, in order.
pub(crate) fn native_calls<'a>(parts: impl Iterator<Item = &'a NativeItem>) -> Vec<(String, Option<String>)> {
    let call = |item: &NativeItem| {
        // Most parts are texts, which do not have this member, so they are not parsed.
        if !item.json().contains("\"functionCall\"") {
            return None;
        }
        let call = serde_json::from_str::<Part<'_>>(item.json()).ok()?.function_call?;
        Some((call.name.unwrap_or_default(), call.id.filter(|id| !id.is_empty())))
    };
    parts.filter_map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use conjure_conversation::{Block, ModelApi, NativeContent};

    fn origin(model: &str) -> Origin {
        Origin { api: ModelApi::Gemini, service: "s".to_owned(), model: model.to_owned() }
    }

    fn answer(items: &[&str]) -> Message {
        let items = items.iter().map(|json| NativeItem::from_json(*json).unwrap()).collect();
        let native = Some(Arc::new(NativeContent { origin: origin("m"), items }));
        Message { native, ..Message::assistant(vec![Block::text("a")]) }
    }

    #[test]
    fn a_token_is_kept_beside_the_parts() {
        let token = RawValue::from_string("\"AA==\"".to_owned()).unwrap();
        let message = answer(&[r#"{"text":"a"}"#, &token_item(&token)]);
        assert_eq!(continuation_token(Some(&message), &origin("m")), Some("\"AA==\""));
        let parts: Vec<_> = native_parts(&message, &origin("m")).unwrap().map(NativeItem::json).collect();
        assert_eq!(parts, [r#"{"text":"a"}"#]);
        // Another model has another token, and an answer that was answered is over.
        assert_eq!(continuation_token(Some(&message), &origin("n")), None);
        assert_eq!(continuation_token(Some(&Message::user(vec![Block::text("a")])), &origin("m")), None);
        assert_eq!(continuation_token(Some(&answer(&[])), &origin("m")), None);
        assert!(native_parts(&message, &origin("n")).is_none());
    }

    #[test]
    fn calls_are_read_from_parts() {
        let message = answer(&[
            r#"{"text":"\"functionCall\" is a word"}"#,
            r#"{"thoughtSignature":"s","functionCall":{"name":"a","args":{}}}"#,
            r#"{"functionCall":{"id":"x","name":"b"}}"#,
            r#"{"functionCall":{"id":"","name":"c"}}"#,
        ]);
        let calls = native_calls(native_parts(&message, &origin("m")).unwrap());
        let named = |name: &str, id: Option<&str>| (name.to_owned(), id.map(str::to_owned));
        assert_eq!(calls, [named("a", None), named("b", Some("x")), named("c", None)]);
    }
}
