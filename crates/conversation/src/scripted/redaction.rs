//! Redacts recordings: a recording leaves the session, so it must not contain secrets.
//!
//! Strings in JSON are unescaped before they are searched. All strings without a secret keep their bytes. A strict replay still works: the
//! recorded digest is that of the request with the redacted responses, and a replay adds these to the history.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use conjure_base::{Digest, Redactor};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::content::block::Block;
use crate::content::message::{Message, Role};
use crate::model::Request;

use super::request_view::request_digest;

/// Redacts secrets in a recording.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordingRedactor(Option<Arc<Redactor>>);

impl RecordingRedactor {
    /// A recording redactor that uses this redactor.
    pub(super) fn new(redactor: Redactor) -> Self {
        Self(Some(Arc::new(redactor)))
    }

    /// The redacted text.
    pub(super) fn text(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.redact(text).into_owned())
    }

    /// The redacted start of a longer text. A secret that begins at its end is removed too.
    pub(super) fn head(&self, head: &str) -> String {
        self.0.as_ref().map_or_else(|| head.to_owned(), |redactor| redactor.redact_head(head))
    }

    /// The redacted JSON of the block.
    pub(super) fn block<'b>(&self, block: &'b Block) -> Cow<'b, str> {
        self.0.as_ref().map_or(Cow::Borrowed(block.json()), |redactor| json(redactor, block.json()))
    }

    /// The digest of the request that a replay of the recording sends.
    pub(super) fn digest(&self, request: &Request) -> Digest {
        let mut replayed = Cow::Borrowed(request);
        for (index, message) in request.messages.iter().enumerate() {
            if let Some(message) = self.message(message) {
                replayed.to_mut().messages[index] = Arc::new(message);
            }
        }
        request_digest(&replayed)
    }

    /// The message in a replay; `None` if it is the same.
    fn message(&self, message: &Message) -> Option<Message> {
        if message.role == Role::User || self.0.is_none() {
            return None;
        }
        let blocks = message.content.iter().map(|block| match self.block(block) {
            Cow::Borrowed(_) => None,
            Cow::Owned(json) => Block::from_json(json).ok(),
        });
        let blocks: Vec<Option<Block>> = blocks.collect();
        blocks.iter().any(Option::is_some).then(|| {
            let pairs = blocks.into_iter().zip(&message.content);
            let content = pairs.map(|(redacted, block)| redacted.unwrap_or_else(|| block.clone()));
            Message { role: message.role, content: content.collect(), native: None }
        })
    }
}

/// Redacts the strings of a block's JSON.
///
/// Field names and values of `type` belong to the format, so they stay: a secret such as `text` must not break them. In the input of a
/// call everything comes from the model, so everything is redacted.
fn json<'j>(redactor: &Redactor, json: &'j str) -> Cow<'j, str> {
    let input = place_of_input(json);
    let mut written = String::new();
    let mut copied = 0;
    let mut last_name = "";
    let mut offset = 0;
    while let Some(start) = json[offset..].find('"').map(|found| offset + found) {
        let end = end_of_text(json, start);
        let literal = &json[start..end];
        offset = end;
        if !input.contains(&start) {
            if json[end..].trim_start().starts_with(':') {
                last_name = literal;
                continue;
            }
            if std::mem::take(&mut last_name) == r#""type""# {
                continue;
            }
        }
        let Ok(text) = serde_json::from_str::<Cow<'_, str>>(literal) else { continue };
        if let Cow::Owned(redacted) = redactor.redact(&text) {
            written.push_str(&json[copied..start]);
            written.push_str(&Value::from(redacted).to_string());
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    written.push_str(&json[copied..]);
    Cow::Owned(written)
}

/// The range of a call's input in its block; empty if there is none.
fn place_of_input(json: &str) -> Range<usize> {
    #[derive(Deserialize)]
    struct Call<'b> {
        #[serde(borrow)]
        input: &'b RawValue,
    }
    let Ok(Call { input }) = serde_json::from_str(json) else { return 0..0 };
    // The input borrows from the text.
    let start = input.get().as_ptr().addr() - json.as_ptr().addr();
    start..start + input.get().len()
}

/// The end of the string that begins at `start`, after its closing quote.
fn end_of_text(json: &str, start: usize) -> usize {
    let mut is_escaped = false;
    let rest = json.as_bytes().iter().enumerate().skip(start + 1);
    for (at, byte) in rest {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> Cow<'_, str> {
        json(&Redactor::new([("KEY", "s3\"cr3t\u{e9}"), ("WORD", "text"), ("NUMBER", "1234")]), text)
    }

    #[test]
    fn secrets_are_found_in_any_escaping_and_other_bytes_stay() {
        for (json, expected) in [
            (r#"{ "a":"x s3\"cr3té y" ,"n":1.50}"#, r#"{ "a":"x [REDACTED:KEY] y" ,"n":1.50}"#),
            (r#"["s3\u0022cr3t\u00e9","\u0061"]"#, r#"["[REDACTED:KEY]","\u0061"]"#),
            (r#"{"type":"text","text":"a text"}"#, r#"{"type":"text","text":"a [REDACTED:WORD]"}"#),
            (r#"{"type" : "text","b":["text"]}"#, r#"{"type" : "text","b":["[REDACTED:WORD]"]}"#),
            // An input has the model's own names and types.
            (
                r#"{"type":"tool_use","input":{"type":"text","text":[{"a 1234":1}],"type":{"text":2}},"b":{"text":3}}"#,
                r#"{"type":"tool_use","input":{"type":"[REDACTED:WORD]","[REDACTED:WORD]":[{"a [REDACTED:NUMBER]":1}],"type":{"[REDACTED:WORD]":2}},"b":{"text":3}}"#,
            ),
        ] {
            assert_eq!(redacted(json), expected);
        }
        for same in [r#"{"n":1234,"text":"\\","type":"text"}"#, "", "\"", r#""\""#, "[1]"] {
            assert!(matches!(redacted(same), Cow::Borrowed(text) if text == same), "{same}");
        }
    }
}
