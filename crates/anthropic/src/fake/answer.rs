//! Builds the fake's answers from scripts and replies.

use conjure_conversation::{Block, ModelEvent, Response, StopReason};
use conjure_model_http::fake::WireAnswer;
use serde_json::{Value, json};

use super::response_writer::{FakeResponse, deltas};

impl WireAnswer for FakeResponse {
    fn from_response(response: Response, pieces: usize) -> Self {
        Self::new(response, pieces)
    }

    fn from_turn(response: Response, deltas: Vec<ModelEvent>) -> Self {
        Self { deltas, ..Self::new(response, 1) }
    }

    fn from_partial(deltas: Vec<ModelEvent>) -> (Self, usize) {
        let (response, after) = (partial_response(&deltas), deltas.len());
        (Self::from_turn(response, deltas), after)
    }

    fn split_into(&mut self, pieces: usize) {
        self.deltas = deltas(&self.response.content, pieces);
    }
}

/// The partial response that these deltas make. A script stores no more about an unfinished response.
fn partial_response(deltas: &[ModelEvent]) -> Response {
    let mut blocks: Vec<Value> = Vec::new();
    for delta in deltas {
        let (index, block) = match delta {
            ModelEvent::TextDelta { index, .. } => (*index, json!({"type": "text", "text": ""})),
            ModelEvent::ThinkingDelta { index, .. } => {
                (*index, json!({"type": "thinking", "thinking": "", "signature": ""}))
            }
            ModelEvent::ToolUseStarted { index, name } => (
                *index,
                json!({"type": "tool_use", "id": format!("toolu_cut_{index}"), "name": name, "input": {}}),
            ),
            _ => continue,
        };
        // Blocks without deltas leave gaps in the indexes, and a stream cannot have gaps.
        while blocks.len() < index {
            blocks.push(json!({"type": "text", "text": ""}));
        }
        if blocks.len() == index {
            blocks.push(block);
        }
    }
    let block = |block: Value| Block::from_json(block.to_string()).ok();
    Response {
        content: blocks.into_iter().filter_map(block).collect(),
        stop_reason: StopReason::Missing,
        ..Response::text("")
    }
}
