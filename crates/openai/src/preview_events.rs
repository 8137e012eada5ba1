//! [`Preview`]: emits preview events while an answer is streamed. Each block has its own index.
//!
//! A text that is only white space is not a block of an answer. So blank pieces are held back until other text arrives.

use conjure_conversation::ModelEvent;
use conjure_model_http::OutputShown;

/// Emits preview events, and records whether there was output.
#[derive(Debug, Default)]
pub(crate) struct Preview {
    shown: OutputShown,
    /// The number of blocks that have begun.
    blocks: usize,
}

/// A text whose pieces are shown as they arrive.
#[derive(Debug, Default)]
pub(crate) struct ShownText {
    index: Option<usize>,
    /// The blank pieces at the start, which are not shown yet.
    pending_blank: String,
}

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    Text,
    Thinking,
}

impl Preview {
    pub(crate) const fn shown(&self) -> OutputShown {
        self.shown
    }

    /// Shows the next piece of a text.
    pub(crate) fn text(
        &mut self,
        place: &mut ShownText,
        kind: TextKind,
        piece: &str,
        emit: &mut dyn FnMut(ModelEvent),
    ) {
        if piece.is_empty() {
            return;
        }
        let mut text = std::mem::take(&mut place.pending_blank);
        text.push_str(piece);
        if place.index.is_none() && text.trim().is_empty() {
            place.pending_blank = text;
            return;
        }
        let index = *place.index.get_or_insert_with(|| self.next_index());
        self.emit(
            match kind {
                TextKind::Text => ModelEvent::TextDelta { index, text },
                TextKind::Thinking => ModelEvent::ThinkingDelta { index, text },
            },
            emit,
        );
    }

    /// Shows that a call of this tool has begun. Returns its index.
    pub(crate) fn call(&mut self, name: &str, emit: &mut dyn FnMut(ModelEvent)) -> usize {
        let index = self.next_index();
        self.emit(ModelEvent::ToolUseStarted { index, name: name.to_owned() }, emit);
        index
    }

    /// Shows the next piece of a call's input.
    pub(crate) fn input(&mut self, index: usize, piece: &str, emit: &mut dyn FnMut(ModelEvent)) {
        if !piece.is_empty() {
            self.emit(ModelEvent::ToolInputDelta { index, partial_json: piece.to_owned() }, emit);
        }
    }

    /// Records output that has no event of its own.
    pub(crate) fn other(&mut self, emit: &mut dyn FnMut(ModelEvent)) {
        if self.shown == OutputShown::Nothing {
            self.shown = OutputShown::Something;
            emit(ModelEvent::Started);
        }
    }

    const fn next_index(&mut self) -> usize {
        let index = self.blocks;
        self.blocks += 1;
        index
    }

    fn emit(&mut self, event: ModelEvent, emit: &mut dyn FnMut(ModelEvent)) {
        self.other(emit);
        emit(event);
    }
}

impl ShownText {
    /// The index of the block, if some of the text was shown.
    pub(crate) const fn index(&self) -> Option<usize> {
        self.index
    }
}
