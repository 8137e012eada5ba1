//! [`MessageAccumulator`]: builds a response from the events of a stream (`reference/messages-api.md`, "Stream").
//!
//! Its memory is bounded by the bytes that the client accepts, and by the number of blocks and additions. It finishes blocks only at the
//! end of the message, because only the stop reason says whether a truncated tool input is an error.

use std::borrow::Cow;

use conjure_conversation::{AfterResponse, ModelEvent, Response, StopReason};
use conjure_model_http::{Decoder, OutputShown, RawObject, SseEvent, StreamError};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::response::block::{InitialContent, Merge, PartialBlock};
use crate::response::error_body;
use crate::response::events::{
    Delta, DeltaType, Event, EventType, FAST_DELTA_PREFIX, FastDelta, FastDeltaBody,
};
use crate::response::wire_message::{MAX_BLOCKS, WireMessage};

/// The maximum number of citations and fields of unknown deltas in a response.
const MAX_ADDITIONS: usize = 100_000;

/// Collects the events of one response.
#[derive(Debug, Default)]
pub struct MessageAccumulator {
    message: Option<WireMessage>,
    blocks: Vec<PartialBlock>,
    /// The number of citations and fields of unknown deltas so far.
    additions: usize,
    shown: OutputShown,
    is_stopped: bool,
}

fn protocol(reason: impl Into<String>) -> StreamError {
    StreamError::Protocol(reason.into())
}

impl MessageAccumulator {
    /// Creates an accumulator for a new stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether output was shown or a tool was started.
    #[must_use]
    pub const fn shown(&self) -> OutputShown {
        self.shown
    }

    /// Whether `message_stop` has arrived. Later events are ignored.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Processes the next event and passes its model events to `emit`.
    ///
    /// # Errors
    /// If the event violates the protocol or reports an error of the service. The stream has ended then.
    pub fn push(&mut self, event: SseEvent<'_>, mut emit: impl FnMut(ModelEvent)) -> Result<(), StreamError> {
        self.push_event(event, &mut emit)
    }

    fn push_event(
        &mut self,
        event: SseEvent<'_>,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        if self.is_stopped {
            return Ok(());
        }
        if (event.name == "content_block_delta" || event.data.starts_with(FAST_DELTA_PREFIX))
            && self.message.is_some()
            && let Ok(FastDelta { kind: EventType::ContentBlockDelta, index, delta }) =
                serde_json::from_str(event.data)
            && self.append_delta(index, delta, emit)?
        {
            return Ok(());
        }
        let parsed = serde_json::from_str::<Event>(event.data);
        let is_known = parsed.as_ref().is_ok_and(|parsed| parsed.kind != EventType::Unknown);
        // Errors of other servers have other types, or none.
        let may_be_error = event.name.is_empty() && !is_known;
        if event.name == "error" || (may_be_error && error_body::is_error(event.data)) {
            return Err(error_body::of_event(event.data).into());
        }
        match parsed {
            Ok(parsed) => self.process(parsed, event.data, emit),
            Err(error) => self.push_irregular_event(event, &error, emit),
        }
    }

    /// Processes an event that does not have the usual form.
    fn push_irregular_event(
        &mut self,
        event: SseEvent<'_>,
        error: &serde_json::Error,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        #[derive(Deserialize)]
        struct Kind {
            #[serde(rename = "type")]
            kind: String,
        }
        #[derive(Deserialize)]
        struct IrregularDelta {
            index: usize,
            delta: IrregularDeltaType,
        }
        #[derive(Deserialize)]
        struct IrregularDeltaType {
            #[serde(rename = "type")]
            kind: DeltaType,
        }
        let kind =
            serde_json::from_str::<Kind>(event.data).map_or(event.name.to_owned(), |parsed| parsed.kind);
        match kind.as_str() {
            "content_block_delta" => match serde_json::from_str::<IrregularDelta>(event.data) {
                // A new type of delta may use a known field name with another value type.
                Ok(irregular)
                    if matches!(irregular.delta.kind, DeltaType::Unknown | DeltaType::Compaction) =>
                {
                    self.append_unknown_delta(irregular.index, irregular.delta.kind, event.data, emit)
                }
                _ => Err(protocol(format!("event `{kind}` cannot be read: {error}"))),
            },
            ""
            | "message_start"
            | "content_block_start"
            | "content_block_stop"
            | "message_delta"
            | "message_stop" => Err(protocol(format!("event `{kind}` cannot be read: {error}"))),
            _ => Ok(()),
        }
    }

    fn process(
        &mut self,
        event: Event,
        data: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        match event.kind {
            EventType::Error => return Err(error_body::of_event(data).into()),
            EventType::Ping | EventType::Unknown => return Ok(()),
            EventType::MessageStart => {
                if self.message.is_some() {
                    return Err(protocol("a second `message_start`"));
                }
                let mut message =
                    *event.message.ok_or_else(|| protocol("`message_start` holds no message"))?;
                if let Some(usage) = message.usage {
                    emit(ModelEvent::UsageReported(usage.tokens()));
                }
                for start in std::mem::take(&mut message.content) {
                    self.start_block(start, emit)?;
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
                self.start_block(start, emit)?;
            }
            EventType::ContentBlockDelta => {
                let index = event.index.ok_or_else(|| protocol("`content_block_delta` has no index"))?;
                let delta = event.delta.ok_or_else(|| protocol("`content_block_delta` holds no delta"))?;
                self.append_block_delta(index, delta, data, emit)?;
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
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        let index = self.blocks.len();
        if index == MAX_BLOCKS {
            return Err(StreamError::TooMany { what: "content blocks", limit: MAX_BLOCKS });
        }
        let (block, initial_content) = PartialBlock::start(start)
            .map_err(|reason| protocol(format!("content block {index}: {reason}")))?;
        self.blocks.push(block);
        match initial_content {
            InitialContent::Empty => {}
            InitialContent::Text(text) => self.emit(ModelEvent::TextDelta { index, text }, emit),
            InitialContent::Thinking(text) => self.emit(ModelEvent::ThinkingDelta { index, text }, emit),
            InitialContent::ToolUse(name) => self.emit(ModelEvent::ToolUseStarted { index, name }, emit),
            InitialContent::Other => self.mark_output_shown(emit),
        }
        Ok(())
    }

    fn append_block_delta(
        &mut self,
        index: usize,
        delta: Delta,
        data: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        if matches!(delta.kind, DeltaType::Compaction | DeltaType::Unknown) {
            return self.append_unknown_delta(index, delta.kind, data, emit);
        }
        match delta.kind {
            DeltaType::Text | DeltaType::Thinking | DeltaType::InputJson => {
                let text = |text: Option<String>| Cow::Owned(text.unwrap_or_default());
                let piece = FastDeltaBody {
                    kind: delta.kind,
                    text: text(delta.text),
                    partial_json: text(delta.partial_json),
                    thinking: text(delta.thinking),
                };
                self.append_delta(index, piece, emit)?;
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

    /// Appends a delta of text, thinking or input. Returns `false` and does nothing for other deltas.
    fn append_delta(
        &mut self,
        index: usize,
        delta: FastDeltaBody<'_>,
        emit: &mut dyn FnMut(ModelEvent),
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
            self.emit(event, emit);
        }
        Ok(true)
    }

    fn append_unknown_delta(
        &mut self,
        index: usize,
        kind: DeltaType,
        data: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        #[derive(Deserialize)]
        struct OtherDelta {
            delta: RawObject,
        }
        let other: OtherDelta = serde_json::from_str(data)
            .map_err(|error| protocol(format!("a delta of block {index} cannot be read: {error}")))?;
        let merge = if kind == DeltaType::Compaction { Merge::Replace } else { Merge::Append };
        self.count_additions(other.delta.len().max(1))?;
        self.block(index)?.add_other(merge, other.delta);
        self.mark_output_shown(emit);
        Ok(())
    }

    fn block(&mut self, index: usize) -> Result<&mut PartialBlock, StreamError> {
        self.blocks
            .get_mut(index)
            .ok_or_else(|| protocol(format!("a delta for content block {index}, which was not started")))
    }

    fn count_additions(&mut self, more: usize) -> Result<(), StreamError> {
        self.additions = self.additions.saturating_add(more);
        if self.additions > MAX_ADDITIONS {
            return Err(StreamError::TooMany { what: "citations and unknown deltas", limit: MAX_ADDITIONS });
        }
        Ok(())
    }

    fn emit(&mut self, event: ModelEvent, emit: &mut dyn FnMut(ModelEvent)) {
        self.mark_output_shown(emit);
        emit(event);
    }

    /// Emits `Started` before the first output.
    fn mark_output_shown(&mut self, emit: &mut dyn FnMut(ModelEvent)) {
        if self.shown == OutputShown::Nothing {
            self.shown = OutputShown::Something;
            emit(ModelEvent::Started);
        }
    }

    /// Returns the response, or `None` if the stream ended before `message_stop`.
    ///
    /// # Errors
    /// If the content is invalid.
    pub fn finish(self) -> Result<Option<Response>, StreamError> {
        let Some(message) = self.message.filter(|_| self.is_stopped) else {
            return Ok(None);
        };
        let stop = StopReason::from(message.stop_reason.clone());
        let is_cut = stop.after_response() == AfterResponse::StopWithoutTools;
        let mut content = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.into_iter().enumerate() {
            let block = block
                .finish(is_cut)
                .map_err(|reason| protocol(format!("content block {index}: {reason}")))?;
            content.push(block);
        }
        Ok(Some(message.into_response(content)))
    }
}

impl Decoder for MessageAccumulator {
    fn push(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        self.push_event(event, emit)
    }

    fn shown(&self) -> OutputShown {
        self.shown
    }

    fn is_complete(&self) -> bool {
        self.is_stopped
    }

    fn finish(self) -> Result<Option<Response>, StreamError> {
        Self::finish(self)
    }
}

#[cfg(test)]
mod tests;
