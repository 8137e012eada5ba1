//! The events of a streamed response as they are on the wire (`reference/messages-api.md`, "Stream").

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::response::wire_message::{WireMessage, WireUsage};

/// The beginning of a delta event, exactly as the service writes it.
pub(crate) const FAST_DELTA_PREFIX: &str = r#"{"type":"content_block_delta""#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventType {
    MessageStart,
    ContentBlockStart,
    ContentBlockDelta,
    ContentBlockStop,
    MessageDelta,
    MessageStop,
    Ping,
    Error,
    #[serde(other)]
    Unknown,
}

/// All fields of an event; the required ones depend on the type.
#[derive(Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "type")]
    pub(crate) kind: EventType,
    #[serde(default)]
    pub(crate) index: Option<usize>,
    #[serde(default)]
    pub(crate) delta: Option<Delta>,
    #[serde(default)]
    pub(crate) content_block: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) message: Option<Box<WireMessage>>,
    #[serde(default)]
    pub(crate) usage: Option<WireUsage>,
}

/// A delta of text, thinking or input. Most events of a stream are such deltas, so they are parsed without copying. Other events are parsed
/// as [`Event`].
#[derive(Deserialize)]
pub(crate) struct FastDelta<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: EventType,
    pub(crate) index: usize,
    #[serde(borrow)]
    pub(crate) delta: FastDeltaBody<'a>,
}

#[derive(Deserialize)]
pub(crate) struct FastDeltaBody<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: DeltaType,
    #[serde(borrow, default)]
    pub(crate) text: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) partial_json: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) thinking: Cow<'a, str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum DeltaType {
    #[serde(rename = "text_delta")]
    Text,
    #[serde(rename = "input_json_delta")]
    InputJson,
    #[serde(rename = "thinking_delta")]
    Thinking,
    #[serde(rename = "signature_delta")]
    Signature,
    #[serde(rename = "citations_delta")]
    Citations,
    #[serde(rename = "compaction_delta")]
    Compaction,
    #[default]
    #[serde(other)]
    Unknown,
}

/// The delta of a block or, without a type, of the message.
#[derive(Deserialize)]
pub(crate) struct Delta {
    #[serde(default, rename = "type")]
    pub(crate) kind: DeltaType,
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) partial_json: Option<String>,
    #[serde(default)]
    pub(crate) thinking: Option<String>,
    #[serde(default)]
    pub(crate) signature: Option<String>,
    #[serde(default)]
    pub(crate) citation: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) stop_reason: Option<String>,
    #[serde(default)]
    pub(crate) container: Option<Box<RawValue>>,
}
