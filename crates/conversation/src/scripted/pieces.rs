//! An answer as a stream of pieces, the way a service sends it.

use std::iter;

use crate::content::{Block, BlockKind};
use crate::model::ModelEvent;

/// The deltas of an answer, block by block, each text in at most `pieces` pieces. Joined again, the pieces of a
/// block are its text, its thinking or its input, to the byte.
pub(super) fn deltas(content: &[Block], pieces: usize) -> impl Iterator<Item = ModelEvent> {
    content.iter().enumerate().flat_map(move |(index, block)| block_deltas(index, block, pieces))
}

fn block_deltas(index: usize, block: &Block, pieces: usize) -> Vec<ModelEvent> {
    match block.kind() {
        BlockKind::Text(text) => {
            split(text, pieces).map(|piece| ModelEvent::TextDelta { index, text: piece.to_owned() }).collect()
        }
        BlockKind::Thinking(text) => split(text, pieces)
            .map(|piece| ModelEvent::ThinkingDelta { index, text: piece.to_owned() })
            .collect(),
        BlockKind::ToolUse(call) => iter::once(ModelEvent::ToolUseStarted { index, name: call.name.clone() })
            .chain(
                split(call.input.get(), pieces)
                    .map(|piece| ModelEvent::ToolInputDelta { index, partial_json: piece.to_owned() }),
            )
            .collect(),
        BlockKind::ToolResult { .. } | BlockKind::Other(_) => Vec::new(),
    }
}

/// Splits a text into at most `pieces` non-empty pieces of about the same size, between characters.
fn split(text: &str, pieces: usize) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(pieces.max(1)).max(1);
    let mut rest = text;
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = (size..rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}
