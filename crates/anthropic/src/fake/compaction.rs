//! The fake's compaction of histories.
//!
//! A request names the number of tokens above which the service compacts its history. The fake counts four bytes of content as one token,
//! starting at the last compaction.

use conjure_conversation::{Block, BlockKind, Message, ModelEvent, Response, StopReason, Usage};
use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use super::response_writer::FakeResponse;
use crate::options::COMPACTION_BETA;

/// The known edit types.
const EDITS: [&str; 3] = ["clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"];
/// The default trigger, in tokens.
const TRIGGER: u64 = 150_000;
const BYTES_PER_TOKEN: u64 = 4;

/// The compaction settings of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompactionRequest {
    trigger: u64,
    pauses: bool,
}

/// How a response begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseStart {
    /// Without compaction.
    Plain,
    /// With a summary that replaces this many messages.
    Compacted { messages: usize },
    /// With a summary only. The rest follows with the next request.
    Paused { messages: usize },
}

/// Reads the field `context_management`.
pub(super) fn compaction_request(
    body: &Map<String, Value>,
    betas: &[String],
) -> Result<Option<CompactionRequest>, Refusal> {
    let Some(field) = body.get("context_management").filter(|field| !field.is_null()) else {
        return Ok(None);
    };
    let edits = match field.get("edits") {
        None => &[],
        Some(Value::Array(edits)) => edits.as_slice(),
        Some(_) => return Err(Refusal::invalid("context_management.edits: Input should be a valid list")),
    };
    let mut compaction_request = None;
    for (index, edit) in edits.iter().enumerate() {
        let field_path = format!("context_management.edits.{index}");
        let kind = edit["type"].as_str().unwrap_or_default();
        if !EDITS.contains(&kind) {
            let known = EDITS.map(|kind| format!("'{kind}'")).join(", ");
            return Err(Refusal::invalid(format!(
                "{field_path}: Input tag '{kind}' found; expected tags: {known}"
            )));
        }
        if kind != "compact_20260112" {
            continue;
        }
        if !betas.iter().any(|beta| beta == COMPACTION_BETA) {
            return Err(Refusal::invalid(format!(
                "{field_path}: this edit needs the beta `{COMPACTION_BETA}`"
            )));
        }
        let trigger = match &edit["trigger"] {
            Value::Null => TRIGGER,
            trigger if trigger["type"] == "input_tokens" => {
                trigger["value"].as_u64().filter(|value| *value > 0).ok_or_else(|| {
                    Refusal::invalid(format!(
                        "{field_path}.trigger.value: Input should be a positive integer"
                    ))
                })?
            }
            _ => {
                return Err(Refusal::invalid(format!(
                    "{field_path}.trigger: Input tag should be 'input_tokens'"
                )));
            }
        };
        let pauses = edit["pause_after_compaction"].as_bool().unwrap_or_default();
        compaction_request = Some(CompactionRequest { trigger, pauses });
    }
    Ok(compaction_request)
}

/// Decides how the response to these messages begins.
pub(super) fn response_start(
    compaction_request: Option<CompactionRequest>,
    messages: &[Message],
) -> ResponseStart {
    let Some(CompactionRequest { trigger, pauses }) = compaction_request else { return ResponseStart::Plain };
    let blocks: Vec<&Block> = messages.iter().flat_map(|message| &message.content).collect();
    let is_compaction =
        |block: &&Block| matches!(block.kind(), BlockKind::Other(kind) if kind == "compaction");
    let start = blocks.iter().rposition(is_compaction).unwrap_or(0);
    let bytes: u64 = blocks[start..].iter().map(|block| block.json().len() as u64).sum();
    let messages = messages.len();
    match bytes / BYTES_PER_TOKEN >= trigger {
        false => ResponseStart::Plain,
        true if pauses => ResponseStart::Paused { messages },
        true => ResponseStart::Compacted { messages },
    }
}

/// A `compaction` block that replaces this many messages.
fn block(messages: usize) -> Option<Block> {
    let block = json!({"type": "compaction", "content": format!("A summary of {messages} messages.")});
    Block::from_json(block.to_string()).ok()
}

/// The usage of writing the summary.
const USED: Usage = Usage {
    input_tokens: 1_000,
    output_tokens: 50,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    cost_micros: 0,
};

/// A response that contains only the summary.
pub(super) fn paused(messages: usize) -> FakeResponse {
    let response = Response {
        content: block(messages).into_iter().collect(),
        stop_reason: StopReason::Compaction,
        ..Response::text("")
    };
    FakeResponse { compaction: Some(USED), ..FakeResponse::new(response, 1) }
}

/// Puts the summary at the start of the response.
pub(super) fn prepend_summary(answer: &mut FakeResponse, messages: usize) {
    let Some(block) = block(messages) else { return };
    answer.response.content.insert(0, block);
    for delta in &mut answer.deltas {
        if let ModelEvent::TextDelta { index, .. }
        | ModelEvent::ThinkingDelta { index, .. }
        | ModelEvent::ToolUseStarted { index, .. }
        | ModelEvent::ToolInputDelta { index, .. } = delta
        {
            *index = index.saturating_add(1);
        }
    }
    answer.compaction = Some(USED);
}
