//! Writes the history as `contents`.
//!
//! - An answer of the same origin is sent back part by part, byte for byte, in one `model` content.
//! - Any other answer is translated: its texts and its calls are sent. Parts that only its own service can read are left out. The service
//!   refuses a call without a signature, so the first call of such an answer gets [`NO_SIGNATURE`].
//! - All results of a step are in one `user` content, in order. A result has the name of its call, and the id that the service gave to the
//!   call. Ids that the client made are not sent.

use std::sync::Arc;

use conjure_conversation::{Block, BlockKind, Message, Origin, Role, ToolCall};
use conjure_model_http::{InputCompletion, finish_input, quoted};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::native_parts::native_calls;
use crate::native_parts::native_parts;
use crate::tool_names::wire_name;

/// A placeholder that the service accepts as the signature of a call that another model made.
pub(crate) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The images and documents of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MediaSize {
    pub(crate) count: u64,
    /// The size of their data in the request, in bytes.
    pub(crate) data_bytes: u64,
}

/// Appends the contents of these messages, separated by commas. Returns the size of their images and documents.
pub(crate) fn write_contents(out: &mut String, messages: &[Arc<Message>], origin: &Origin) -> MediaSize {
    let mut media = MediaSize::default();
    let mut calls = Vec::new();
    let start = out.len();
    for message in messages {
        let before = out.len();
        if before > start {
            out.push(',');
        }
        out.push_str(match message.role {
            Role::User => "{\"role\":\"user\",\"parts\":[",
            Role::Assistant => "{\"role\":\"model\",\"parts\":[",
        });
        let mut parts = PartsWriter { out, media: &mut media, is_empty: true };
        match message.role {
            Role::User => {
                message.content.iter().for_each(|block| write_user_block(&mut parts, block, &calls))
            }
            Role::Assistant => {
                calls = sent_calls(message, origin);
                write_answer(&mut parts, message, origin);
            }
        }
        if parts.is_empty {
            // The service refuses a content without parts.
            out.truncate(before);
        } else {
            out.push_str("]}");
        }
    }
    media
}

/// Writes the parts of one content.
struct PartsWriter<'a> {
    out: &'a mut String,
    media: &'a mut MediaSize,
    is_empty: bool,
}

impl PartsWriter<'_> {
    /// Appends a part, given as pieces of JSON.
    fn part(&mut self, texts: &[&str]) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        texts.iter().for_each(|text| self.out.push_str(text));
    }

    /// Counts the media of a part, or of the parts of a result.
    fn count(&mut self, media: MediaSize) {
        self.media.count = self.media.count.saturating_add(media.count);
        self.media.data_bytes = self.media.data_bytes.saturating_add(media.data_bytes);
    }

    fn text(&mut self, text: &str) {
        self.part(&["{\"text\":", &quoted(text), "}"]);
    }
}

/// A call, as the request contains it.
struct SentCall {
    /// The canonical id, by which a result refers to the call.
    id: String,
    name: String,
    /// The id that the service gave to the call.
    service_id: Option<String>,
}

/// The calls of an answer.
fn sent_calls(message: &Message, origin: &Origin) -> Vec<SentCall> {
    let mut native = native_parts(message, origin).map(native_calls).unwrap_or_default().into_iter();
    let sent = |call: &ToolCall| {
        let (name, service_id) = native.next().unwrap_or_else(|| (wire_name(&call.name).into_owned(), None));
        SentCall { id: call.id.as_str().to_owned(), name, service_id }
    };
    message.tool_calls().map(sent).collect()
}

fn write_answer(parts: &mut PartsWriter<'_>, message: &Message, origin: &Origin) {
    if let Some(native) = native_parts(message, origin) {
        for part in native {
            parts.count(inline_media(part.json()));
            parts.part(&[part.json()]);
        }
        return;
    }
    let mut is_first_call = true;
    for block in &message.content {
        match block.kind() {
            BlockKind::Text(text) => parts.text(text),
            BlockKind::ToolUse(call) => {
                let signature = match std::mem::take(&mut is_first_call) {
                    true => format!(",\"thoughtSignature\":{}", quoted(NO_SIGNATURE)),
                    false => String::new(),
                };
                let args = finish_input(call.input.get(), InputCompletion::Complete);
                let name = quoted(&wire_name(&call.name));
                parts.part(&[
                    "{\"functionCall\":{\"name\":",
                    &name,
                    ",\"args\":",
                    &args,
                    "}",
                    &signature,
                    "}",
                ]);
            }
            // Only the answer's own service can read the block.
            _ => {}
        }
    }
}

/// An image or a document.
#[derive(Deserialize)]
struct MediaBlock<'a> {
    #[serde(borrow, default)]
    source: Option<MediaSource<'a>>,
}

/// The source of its content.
#[derive(Deserialize)]
struct MediaSource<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    url: Option<String>,
}

impl MediaSource<'_> {
    /// The part with this content, and the size of its data. `None` if the service does not support such a source.
    fn part(&self) -> Option<(String, MediaSize)> {
        let media_type = self.media_type.as_deref();
        match (self.kind.as_str(), self.data, &self.url) {
            ("base64", Some(data), _) => {
                let part = format!(
                    "{{\"inlineData\":{{\"mimeType\":{},\"data\":{}}}}}",
                    quoted(media_type.unwrap_or("application/octet-stream")),
                    data.get()
                );
                Some((part, MediaSize { count: 1, data_bytes: data.get().len() as u64 }))
            }
            ("text", Some(text), _) => Some((format!("{{\"text\":{}}}", text.get()), MediaSize::default())),
            ("url", _, Some(url)) => {
                let kind =
                    media_type.map(|kind| format!(",\"mimeType\":{}", quoted(kind))).unwrap_or_default();
                let part = format!("{{\"fileData\":{{\"fileUri\":{}{kind}}}}}", quoted(url));
                Some((part, MediaSize { count: 1, data_bytes: 0 }))
            }
            _ => None,
        }
    }
}

fn media_part(json: &str) -> Option<(String, MediaSize)> {
    serde_json::from_str::<MediaBlock<'_>>(json).ok()?.source?.part()
}

/// The size of the media in a native part.
fn inline_media(json: &str) -> MediaSize {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Part<'a> {
        #[serde(borrow, default)]
        inline_data: Option<InlineData<'a>>,
    }
    #[derive(Deserialize)]
    struct InlineData<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }
    // Most parts are texts, so most are not parsed.
    if !json.contains("\"inlineData\"") {
        return MediaSize::default();
    }
    match serde_json::from_str::<Part<'_>>(json).ok().and_then(|part| part.inline_data) {
        Some(media) => MediaSize { count: 1, data_bytes: media.data.get().len() as u64 },
        None => MediaSize::default(),
    }
}

fn write_user_block(parts: &mut PartsWriter<'_>, block: &Block, calls: &[SentCall]) {
    match block.kind() {
        BlockKind::Text(text) => parts.text(text),
        BlockKind::ToolResult { tool_use_id, is_error, text } => {
            match calls.iter().find(|call| call.id == *tool_use_id) {
                Some(call) => write_result(parts, block, call, *is_error, text),
                None => parts.text(text),
            }
        }
        BlockKind::Other(kind) => match media_part(block.json()) {
            Some((part, size)) => {
                parts.count(size);
                parts.part(&[&part]);
            }
            None => parts.text(&format!("[Left out, since this model's service does not take it: `{kind}`]")),
        },
        // Blocks of the model do not belong in a user message.
        _ => {}
    }
}

fn write_result(parts: &mut PartsWriter<'_>, block: &Block, call: &SentCall, is_error: bool, text: &str) {
    let id = call.service_id.as_ref().map(|id| format!("\"id\":{},", quoted(id))).unwrap_or_default();
    let key = if is_error { "error" } else { "output" };
    let media = result_media(block.json());
    let media = match media.is_empty() {
        true => String::new(),
        false => {
            media.iter().for_each(|part| parts.count(inline_media(part)));
            format!(",\"parts\":[{}]", media.join(","))
        }
    };
    let (name, text) = (quoted(&call.name), quoted(text));
    parts.part(&[
        "{\"functionResponse\":{",
        &id,
        "\"name\":",
        &name,
        ",\"response\":{\"",
        key,
        "\":",
        &text,
        "}",
        &media,
        "}}",
    ]);
}

/// The images and documents in a result, as parts.
fn result_media(json: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct ResultBlock<'a> {
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    // Most results are texts, so most are not parsed.
    if !json.contains("\"source\"") {
        return Vec::new();
    }
    let content = serde_json::from_str::<ResultBlock<'_>>(json).ok().and_then(|block| block.content);
    let blocks: Vec<&RawValue> =
        content.and_then(|content| serde_json::from_str(content.get()).ok()).unwrap_or_default();
    let inline = blocks.into_iter().filter_map(|block| Some(media_part(block.get())?.0));
    inline.filter(|part| part.starts_with("{\"inlineData\"")).collect()
}
