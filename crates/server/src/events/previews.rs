//! Previews: parts of a response while the model generates it.
//!
//! State: the current model call, and the message of its last block. A stream that begins during a call has no previews of it, because it
//! has not seen the call's id.

use conjure_api::{ContentBlock, ContentDelta, EventStreamQuery, Preview, PreviewedEvent};
use conjure_conversation::{EventId, ModelEvent, SessionEvent, SessionEventKind};

/// The part of the response that is being received.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Nothing,
    /// A message that starts with this block.
    Message {
        first: usize,
        id: String,
    },
    /// Thinking in this block.
    Thinking {
        block: usize,
    },
}

/// Converts the previews of one stream.
#[derive(Debug)]
pub(crate) struct PreviewMapping {
    wanted: EventStreamQuery,
    call: Option<EventId>,
    part: Part,
}

impl PreviewMapping {
    pub(crate) const fn new(wanted: EventStreamQuery) -> Self {
        Self { wanted, call: None, part: Part::Nothing }
    }

    /// Records the start or the end of a model call.
    pub(crate) fn note(&mut self, event: &SessionEvent) {
        match event.kind {
            SessionEventKind::ModelRequestStart { .. } => {
                (self.call, self.part) = (Some(event.id.clone()), Part::Nothing);
            }
            SessionEventKind::ModelRequestEnd { .. } => (self.call, self.part) = (None, Part::Nothing),
            _ => {}
        }
    }

    /// Drops the rest of this call's previews. Some were lost, so they are no longer a complete prefix.
    pub(crate) fn forget_call(&mut self) {
        (self.call, self.part) = (None, Part::Nothing);
    }

    /// Converts a preview of the library to previews of the API.
    pub(crate) fn previews(&mut self, preview: &ModelEvent) -> Vec<Preview> {
        match preview {
            ModelEvent::Started => {
                self.part = Part::Nothing;
                Vec::new()
            }
            ModelEvent::TextDelta { index, text } => self.text(*index, text),
            ModelEvent::ThinkingDelta { index, .. } => self.thinking(*index),
            ModelEvent::ToolUseStarted { .. } => {
                self.part = Part::Nothing;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn text(&mut self, block: usize, text: &str) -> Vec<Preview> {
        let mut previews = Vec::new();
        if !matches!(&self.part, Part::Message { first, .. } if *first <= block) {
            let Some(id) = self.id_of(block) else { return previews };
            if self.wanted.previews_messages {
                let event = PreviewedEvent::AgentMessage { id: id.clone() };
                previews.push(Preview::EventStart { event });
            }
            self.part = Part::Message { first: block, id };
        }
        if let Part::Message { first, id } = &self.part
            && self.wanted.previews_messages
        {
            let index = u64::try_from(block - first).ok();
            let delta = ContentDelta { content: ContentBlock::text(text), index };
            previews.push(Preview::EventDelta { event_id: id.clone(), delta });
        }
        previews
    }

    fn thinking(&mut self, block: usize) -> Vec<Preview> {
        let part = Part::Thinking { block };
        if self.part == part {
            return Vec::new();
        }
        self.part = part;
        let id = self.id_of(block).filter(|_| self.wanted.previews_thinking);
        id.map(|id| Preview::EventStart { event: PreviewedEvent::AgentThinking { id } }).into_iter().collect()
    }

    fn id_of(&self, block: usize) -> Option<String> {
        Some(self.call.as_ref()?.response_block(block)?.to_string())
    }
}
