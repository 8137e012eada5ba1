//! From the events of a stream to one answer (`reference/messages-api.md`, "Stream").
//!
//! The accumulator owns the answer so far; it is bounded by the bytes that the client lets in and, since little things
//! take more memory than bytes, by their number. It is lost with the call. Blocks are finished when the message is, since only its stop reason tells whether a cut input is an error.

use std::borrow::Cow;

use conjure_conversation::{AfterAnswer, ApiErrorKind, ModelEvent, StopReason};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answer::{Answer, WireMessage, WireUsage};
use crate::block::{Beginning, GrowingBlock, Merge};
use crate::fields::Fields;
use crate::sse::{SseError, SseEvent};

/// Why a stream is not an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// It is not a stream of events.
    #[error(transparent)]
    Sse(#[from] SseError),
    /// Its events do not follow the protocol.
    #[error("{0}")]
    Protocol(String),
    /// It has more parts than an answer may have.
    #[error("the answer has more than {limit} {what}")]
    TooMany {
        /// Parts of which kind.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The service reported an error in mid-stream.
    #[error("the service reported `{}` in mid-stream: {message}", String::from(.kind.clone()))]
    Service {
        /// Its type.
        kind: ApiErrorKind,
        /// Its message.
        message: String,
    },
}

/// Collects the events of one answer.
#[derive(Debug, Default)]
pub struct Accumulator {
    message: Option<WireMessage>,
    blocks: Vec<GrowingBlock>,
    /// How many citations, and fields of deltas that we do not know, are kept until the end.
    additions: usize,
    shown: Shown,
    is_stopped: bool,
}

/// Whether anything of the answer was shown or started; from then on the call must not be repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shown {
    /// At most that an answer will come.
    #[default]
    Nothing,
    /// A piece of text, thinking or input was handed out, or a tool was started, here or at the service.
    Something,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EventType {
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

/// All that an event may hold; which of it must be there depends on the type.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    index: Option<usize>,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    content_block: Option<Box<RawValue>>,
    #[serde(default)]
    message: Option<Box<WireMessage>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<ServiceError>,
}

/// The event that most of a stream consists of: a piece of text, thinking or input. Read without a copy; whatever does
/// not fit is read as an [`Event`].
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(rename = "type")]
    kind: EventType,
    index: usize,
    #[serde(borrow)]
    delta: PieceDelta<'a>,
}

#[derive(Deserialize)]
struct PieceDelta<'a> {
    #[serde(rename = "type")]
    kind: DeltaType,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(borrow, default)]
    partial_json: Cow<'a, str>,
    #[serde(borrow, default)]
    thinking: Cow<'a, str>,
}

/// How many blocks an answer may have. Real ones have a handful, with tools of the service dozens.
pub(crate) const MOST_BLOCKS: usize = 10_000;
/// How many citations, and fields of deltas that we do not know, an answer may have.
const MOST_ADDITIONS: usize = 100_000;

/// How a piece begins, as the service writes it.
const PIECE: &str = r#"{"type":"content_block_delta""#;

#[derive(Deserialize)]
struct ServiceError {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum DeltaType {
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
struct Delta {
    #[serde(default, rename = "type")]
    kind: DeltaType,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    partial_json: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    citation: Option<Box<RawValue>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_sequence: Option<String>,
    #[serde(default)]
    stop_details: Option<Box<RawValue>>,
    #[serde(default)]
    container: Option<Box<RawValue>>,
}

fn protocol(reason: impl Into<String>) -> StreamError {
    StreamError::Protocol(reason.into())
}

impl Accumulator {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether anything was shown or started yet.
    #[must_use]
    pub const fn shown(&self) -> Shown {
        self.shown
    }

    /// Whether `message_stop` has arrived. What follows it is passed over.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Takes the next event and hands what there is to show to `show`.
    ///
    /// # Errors
    /// When the event breaks the protocol or is an error of the service. The stream is then over.
    pub fn push(&mut self, event: SseEvent<'_>, mut show: impl FnMut(ModelEvent)) -> Result<(), StreamError> {
        if self.is_stopped {
            return Ok(());
        }
        if (event.name == "content_block_delta" || event.data.starts_with(PIECE))
            && self.message.is_some()
            && let Ok(Piece { kind: EventType::ContentBlockDelta, index, delta }) =
                serde_json::from_str(event.data)
            && self.grow_by_piece(index, delta, &mut show)?
        {
            return Ok(());
        }
        match serde_json::from_str::<Event>(event.data) {
            Ok(parsed) => self.take(parsed, event.data, &mut show),
            Err(error) => self.take_odd(event, &error, &mut show),
        }
    }

    /// An event that does not have the shape that we know.
    fn take_odd(
        &mut self,
        event: SseEvent<'_>,
        error: &serde_json::Error,
        show: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        #[derive(Deserialize)]
        struct Kind {
            #[serde(rename = "type")]
            kind: String,
        }
        #[derive(Deserialize)]
        struct OddDelta {
            index: usize,
            delta: OddType,
        }
        #[derive(Deserialize)]
        struct OddType {
            #[serde(rename = "type")]
            kind: DeltaType,
        }
        let kind =
            serde_json::from_str::<Kind>(event.data).map_or(event.name.to_owned(), |parsed| parsed.kind);
        match kind.as_str() {
            "content_block_delta" => match serde_json::from_str::<OddDelta>(event.data) {
                // A new delta may use a name that we know for something else.
                Ok(odd) if matches!(odd.delta.kind, DeltaType::Unknown | DeltaType::Compaction) => {
                    self.grow_by_other(odd.index, odd.delta.kind, event.data, show)
                }
                _ => Err(protocol(format!("event `{kind}` cannot be read: {error}"))),
            },
            "error" => Err(StreamError::Service {
                kind: ApiErrorKind::Api,
                message: event.data.chars().take(500).collect(),
            }),
            ""
            | "message_start"
            | "content_block_start"
            | "content_block_stop"
            | "message_delta"
            | "message_stop" => Err(protocol(format!("event `{kind}` cannot be read: {error}"))),
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        event: Event,
        data: &str,
        show: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        match event.kind {
            EventType::Ping | EventType::Unknown => return Ok(()),
            EventType::Error => {
                let error = event.error.unwrap_or(ServiceError { kind: None, message: None });
                return Err(StreamError::Service {
                    kind: error.kind.map_or(ApiErrorKind::Api, ApiErrorKind::from),
                    message: error.message.unwrap_or_else(|| "it gave no message".to_owned()),
                });
            }
            EventType::MessageStart => {
                if self.message.is_some() {
                    return Err(protocol("a second `message_start`"));
                }
                let mut message =
                    *event.message.ok_or_else(|| protocol("`message_start` holds no message"))?;
                if let Some(usage) = message.usage {
                    show(ModelEvent::Used(usage.tokens()));
                }
                for start in std::mem::take(&mut message.content) {
                    self.start_block(start, show)?;
                }
                self.message = Some(message);
                return Ok(());
            }
            _ => {}
        }
        let Some(message) = &mut self.message else {
            return Err(protocol("an event before `message_start`"));
        };
        match event.kind {
            EventType::ContentBlockStart => {
                if event.index != Some(self.blocks.len()) {
                    return Err(protocol("`content_block_start` is out of order"));
                }
                let start =
                    event.content_block.ok_or_else(|| protocol("`content_block_start` holds no block"))?;
                self.start_block(start, show)?;
            }
            EventType::ContentBlockDelta => {
                let index = event.index.ok_or_else(|| protocol("`content_block_delta` has no index"))?;
                let delta = event.delta.ok_or_else(|| protocol("`content_block_delta` holds no delta"))?;
                self.grow(index, delta, data, show)?;
            }
            EventType::ContentBlockStop => {
                let block = event.index.and_then(|index| self.blocks.get_mut(index));
                block
                    .ok_or_else(|| protocol("`content_block_stop` for a block that was not started"))?
                    .close();
            }
            EventType::MessageDelta => {
                if let Some(delta) = event.delta {
                    message.stop_reason = delta.stop_reason.or_else(|| message.stop_reason.take());
                    message.stop_sequence = delta.stop_sequence.or_else(|| message.stop_sequence.take());
                    message.stop_details = delta.stop_details.or_else(|| message.stop_details.take());
                    message.container = delta.container.or_else(|| message.container.take());
                }
                if let Some(usage) = event.usage {
                    message.usage.get_or_insert_default().overwrite(usage);
                }
            }
            EventType::MessageStop => self.is_stopped = true,
            EventType::MessageStart | EventType::Ping | EventType::Error | EventType::Unknown => {}
        }
        Ok(())
    }

    fn start_block(
        &mut self,
        start: Box<RawValue>,
        show: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        let index = self.blocks.len();
        if index == MOST_BLOCKS {
            return Err(StreamError::TooMany { what: "content blocks", limit: MOST_BLOCKS });
        }
        let (block, beginning) = GrowingBlock::start(start)
            .map_err(|reason| protocol(format!("content block {index}: {reason}")))?;
        self.blocks.push(block);
        match beginning {
            Beginning::Empty => {}
            Beginning::Text(text) => self.show(ModelEvent::TextDelta { index, text }, show),
            Beginning::Thinking(text) => self.show(ModelEvent::ThinkingDelta { index, text }, show),
            Beginning::ToolUse(name) => self.show(ModelEvent::ToolUseStarted { index, name }, show),
            Beginning::Other => self.mark_shown(show),
        }
        Ok(())
    }

    fn grow(
        &mut self,
        index: usize,
        delta: Delta,
        data: &str,
        show: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        if matches!(delta.kind, DeltaType::Compaction | DeltaType::Unknown) {
            return self.grow_by_other(index, delta.kind, data, show);
        }
        match delta.kind {
            DeltaType::Text | DeltaType::Thinking | DeltaType::InputJson => {
                let text = |text: Option<String>| Cow::Owned(text.unwrap_or_default());
                let piece = PieceDelta {
                    kind: delta.kind,
                    text: text(delta.text),
                    partial_json: text(delta.partial_json),
                    thinking: text(delta.thinking),
                };
                self.grow_by_piece(index, piece, show)?;
            }
            DeltaType::Signature => {
                let block = self.block(index)?;
                if let Some(signature) = delta.signature {
                    block.set_signature(signature);
                }
            }
            DeltaType::Citations => {
                self.count_additions(1)?;
                let block = self.block(index)?;
                if let Some(citation) = delta.citation {
                    block.add_citation(citation);
                }
            }
            DeltaType::Compaction | DeltaType::Unknown => {}
        }
        Ok(())
    }

    /// Returns whether it was a piece of text, thinking or input; else nothing is done.
    fn grow_by_piece(
        &mut self,
        index: usize,
        delta: PieceDelta<'_>,
        show: &mut dyn FnMut(ModelEvent),
    ) -> Result<bool, StreamError> {
        let block = self.block(index)?;
        let event = match delta.kind {
            DeltaType::Text => {
                block.add_text(&delta.text);
                (!delta.text.is_empty())
                    .then(|| ModelEvent::TextDelta { index, text: delta.text.into_owned() })
            }
            DeltaType::Thinking => {
                block.add_thinking(&delta.thinking);
                (!delta.thinking.is_empty())
                    .then(|| ModelEvent::ThinkingDelta { index, text: delta.thinking.into_owned() })
            }
            DeltaType::InputJson => {
                block.add_input(&delta.partial_json);
                (block.is_tool_use() && !delta.partial_json.is_empty()).then(|| ModelEvent::ToolInputDelta {
                    index,
                    partial_json: delta.partial_json.into_owned(),
                })
            }
            _ => return Ok(false),
        };
        if let Some(event) = event {
            self.show(event, show);
        }
        Ok(true)
    }

    fn grow_by_other(
        &mut self,
        index: usize,
        kind: DeltaType,
        data: &str,
        show: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        #[derive(Deserialize)]
        struct OtherDelta {
            delta: Fields,
        }
        let other: OtherDelta = serde_json::from_str(data)
            .map_err(|error| protocol(format!("a delta of block {index} cannot be read: {error}")))?;
        let merge = if kind == DeltaType::Compaction { Merge::Replace } else { Merge::Append };
        self.count_additions(other.delta.len().max(1))?;
        self.block(index)?.add_other(merge, other.delta);
        self.mark_shown(show);
        Ok(())
    }

    fn block(&mut self, index: usize) -> Result<&mut GrowingBlock, StreamError> {
        self.blocks
            .get_mut(index)
            .ok_or_else(|| protocol(format!("a delta for content block {index}, which was not started")))
    }

    fn count_additions(&mut self, more: usize) -> Result<(), StreamError> {
        self.additions = self.additions.saturating_add(more);
        if self.additions > MOST_ADDITIONS {
            return Err(StreamError::TooMany { what: "citations and unknown deltas", limit: MOST_ADDITIONS });
        }
        Ok(())
    }

    fn show(&mut self, event: ModelEvent, show: &mut dyn FnMut(ModelEvent)) {
        self.mark_shown(show);
        show(event);
    }

    /// The first thing that is shown or started announces itself.
    fn mark_shown(&mut self, show: &mut dyn FnMut(ModelEvent)) {
        if self.shown == Shown::Nothing {
            self.shown = Shown::Something;
            show(ModelEvent::Started);
        }
    }

    /// The answer, or `None` when the stream was cut before `message_stop`.
    ///
    /// # Errors
    /// When what was streamed is not an answer.
    pub fn finish(self) -> Result<Option<Answer>, StreamError> {
        let Some(message) = self.message.filter(|_| self.is_stopped) else {
            return Ok(None);
        };
        let stop = StopReason::from(message.stop_reason.clone());
        let is_cut = stop.consequence() == AfterAnswer::StopWithoutTools;
        let mut content = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.into_iter().enumerate() {
            let block = block
                .finish(is_cut)
                .map_err(|reason| protocol(format!("content block {index}: {reason}")))?;
            content.push(block);
        }
        Ok(Some(message.into_answer(content)))
    }
}

#[cfg(test)]
mod tests;
