//! Reads the canonical history as both APIs need it: texts, images, files, calls and results.
//!
//! Blocks that only their own service understands (thinking, tools of a service, compaction) are not translated.
//!
//! An answer that is replayed in its native form has the call ids that its service gave. The canonical ids may differ, because the
//! conversation makes duplicate ids unique. So [`CallIds`] maps the ids of results by the order of the calls.

use std::collections::HashMap;

use conjure_conversation::{Block, BlockKind, Message, ToolCall};
use serde::Deserialize;
use serde_json::Value;

/// A part of a user message or of a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UserPart {
    Text(String),
    Image {
        /// A `data:` URL, or the URL of the image.
        url: String,
    },
    File {
        name: String,
        /// A `data:` URL.
        data: String,
    },
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultParts {
    /// The id of the call on the wire.
    pub(crate) call_id: String,
    pub(crate) parts: Vec<UserPart>,
}

/// A message of the user: first results of tools, then what the user says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserMessage {
    pub(crate) results: Vec<ResultParts>,
    pub(crate) parts: Vec<UserPart>,
}

/// An answer of any service, translated for another one.
#[derive(Debug)]
pub(crate) struct TranslatedAnswer<'m> {
    /// Its texts, joined by newlines.
    pub(crate) text: String,
    /// Its readable reasoning, joined by newlines.
    pub(crate) thinking: String,
    pub(crate) calls: Vec<&'m ToolCall>,
}

/// The ids of the calls in the last answer: the canonical id, and the id on the wire.
#[derive(Debug, Default)]
pub(crate) struct CallIds(HashMap<String, String>);

impl CallIds {
    /// The ids of a translated answer: both ids are the same.
    pub(crate) fn translated(calls: &[&ToolCall]) -> Self {
        Self(calls.iter().map(|call| (call.id.to_string(), call.id.to_string())).collect())
    }

    /// The ids of an answer that is replayed in its native form. `None` if its native form and its blocks have different numbers of calls.
    pub(crate) fn native<'m>(calls: impl Iterator<Item = &'m ToolCall>, native: Vec<String>) -> Option<Self> {
        let calls: Vec<&ToolCall> = calls.collect();
        (calls.len() == native.len())
            .then(|| Self(calls.iter().map(|call| call.id.to_string()).zip(native).collect()))
    }
}

impl UserMessage {
    /// Reads a user message. `calls` are the calls of the answer before it.
    pub(crate) fn read(message: &Message, calls: &CallIds) -> Self {
        let mut read = Self::default();
        for block in &message.content {
            match block.kind() {
                BlockKind::Text(text) => read.parts.push(UserPart::Text(text.clone())),
                BlockKind::ToolResult { tool_use_id, is_error, .. } => {
                    let parts = result_parts(block, *is_error);
                    match calls.0.get(tool_use_id) {
                        Some(wire) => read.results.push(ResultParts { call_id: wire.clone(), parts }),
                        // A service refuses a result without its call, so the result becomes ordinary content.
                        None => read.parts.extend(parts),
                    }
                }
                BlockKind::Other(kind) => read.parts.push(media_part(kind, block.json())),
                _ => {}
            }
        }
        read
    }
}

impl<'m> TranslatedAnswer<'m> {
    /// Reads the parts of an answer that other services understand.
    pub(crate) fn read(message: &'m Message) -> Self {
        let mut thinking = Vec::new();
        for block in &message.content {
            if let BlockKind::Thinking(text) = block.kind() {
                thinking.push(text.as_str());
            }
        }
        Self { text: message.text(), thinking: thinking.join("\n"), calls: message.tool_calls().collect() }
    }
}

/// The parts of a result. The text of a failed one says so, because the APIs have no field for it.
fn result_parts(block: &Block, is_error: bool) -> Vec<UserPart> {
    #[derive(Deserialize)]
    struct ResultBlock {
        #[serde(default)]
        content: Value,
    }
    let content = serde_json::from_str::<ResultBlock>(block.json()).map(|block| block.content);
    let mut parts: Vec<UserPart> = match content.unwrap_or_default() {
        Value::String(text) => vec![UserPart::Text(text)],
        Value::Array(parts) => parts
            .iter()
            .map(|part| match (part["type"].as_str().unwrap_or_default(), part["text"].as_str()) {
                ("text", Some(text)) => UserPart::Text(text.to_owned()),
                (kind, _) => media_part(kind, &part.to_string()),
            })
            .collect(),
        _ => Vec::new(),
    };
    if is_error {
        match parts.first_mut() {
            Some(UserPart::Text(text)) => text.insert_str(0, "Error: "),
            _ => parts.insert(0, UserPart::Text("Error".to_owned())),
        }
    }
    parts
}

/// An image or a document. Any other block becomes a note.
fn media_part(kind: &str, json: &str) -> UserPart {
    let block: Value = serde_json::from_str(json).unwrap_or_default();
    let source = &block["source"];
    let source_text = |name: &str| source[name].as_str().unwrap_or_default();
    let data_url = || format!("data:{};base64,{}", source_text("media_type"), source_text("data"));
    match (kind, source_text("type")) {
        ("image", "base64") => UserPart::Image { url: data_url() },
        ("image", "url") => UserPart::Image { url: source_text("url").to_owned() },
        ("document", "base64") => UserPart::File {
            name: block["title"].as_str().unwrap_or("document.pdf").to_owned(),
            data: data_url(),
        },
        ("document", "text") => UserPart::Text(source_text("data").to_owned()),
        _ => UserPart::Text(format!("[left out: this service does not take a block of the type `{kind}`]")),
    }
}

/// The texts of these parts, joined by newlines. `None` if one of them is not a text.
pub(crate) fn only_text(parts: &[UserPart]) -> Option<String> {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            UserPart::Text(text) => Some(text.as_str()),
            UserPart::Image { .. } | UserPart::File { .. } => None,
        })
        .collect();
    texts.map(|texts| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_base::CallId;
    use conjure_conversation::{ResultContent, ToolResult};
    use serde_json::json;

    fn block(json: &Value) -> Block {
        Block::from_json(json.to_string()).unwrap()
    }

    fn text(text: &str) -> UserPart {
        UserPart::Text(text.to_owned())
    }

    #[test]
    fn results_use_wire_ids_and_failures_are_in_the_text() {
        let call = |id: &str| ToolCall::new(id, "view", &json!({}));
        let (first, second) = (call("call_0_7"), call("call_1"));
        let native = vec!["call_0".to_owned(), "call_1".to_owned()];
        let ids = CallIds::native([&first, &second].into_iter(), native).unwrap();
        let image = ResultContent::Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
        let seen = ToolResult { content: vec![image], ..ToolResult::error(&CallId::new("call_1"), "") };
        let message = Message::user(vec![
            Block::tool_result(&ToolResult::error(&CallId::new("call_0_7"), "no such file")),
            Block::tool_result(&seen),
            Block::tool_result(&ToolResult::text_result(&CallId::new("lost"), "of an older call")),
            Block::text("and hurry"),
        ]);
        let read = UserMessage::read(&message, &ids);
        let image = UserPart::Image { url: "data:image/png;base64,AA==".to_owned() };
        assert_eq!(
            read.results,
            [
                ResultParts { call_id: "call_0".to_owned(), parts: vec![text("Error: no such file")] },
                ResultParts { call_id: "call_1".to_owned(), parts: vec![text("Error"), image] },
            ]
        );
        assert_eq!(read.parts, [text("of an older call"), text("and hurry")]);
        assert!(CallIds::native([&first].into_iter(), Vec::new()).is_none());
    }

    #[test]
    fn images_and_documents_are_read_and_unknown_blocks_leave_a_note() {
        let message = Message::user(vec![
            block(&json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}})),
            block(&json!({"type": "document", "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}})),
            block(
                &json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}}),
            ),
            block(&json!({"type": "container_upload", "file_id": "file_1"})),
        ]);
        let read = UserMessage::read(&message, &CallIds::default());
        assert_eq!(
            read.parts,
            [
                UserPart::Image { url: "https://example.com/a.png".to_owned() },
                UserPart::File {
                    name: "a.pdf".to_owned(),
                    data: "data:application/pdf;base64,JVBE".to_owned()
                },
                text("plain"),
                text("[left out: this service does not take a block of the type `container_upload`]"),
            ]
        );
        assert_eq!(only_text(&read.parts), None);
        assert_eq!(only_text(&[text("a"), text("b")]).as_deref(), Some("a\nb"));
    }
}
