//! The acceptance of a model response, and the replacement of a block that the service refused.

use std::collections::HashSet;

use conjure_base::{CallId, TurnId};

use super::checks::running_model_call;
use super::tool_calls::skipped_result;
use crate::content::block::{Block, BlockKind};
use crate::content::stop_reason::StopReason;
use crate::events::event::EventKind;
use crate::events::turn_stop::TurnStop;
use crate::machine::command::Rejection;
use crate::model::Response;
use crate::state::apply_response::{ResponseEffect, count_repeats, response_effect, skip_reason};
use crate::state::limits::Limit;
use crate::state::running_turn::RunningTurn;
use crate::state::session_state::SessionState;
use crate::tools::server_tools::container_is_gone;
use crate::tools::tool::{ToolCall, ToolResult};

/// The note to the model about a lost container.
pub(super) const CONTAINER_LOST: &str = "[The container in which code ran so far has expired, and a fresh one takes its place. What was in it is gone: \
    files, variables and what was running. Make again what is still needed.]";

pub(super) fn accept_response(
    state: &SessionState,
    turn: TurnId,
    call: u32,
    mut response: Response,
) -> Result<Vec<EventKind>, Rejection> {
    let running = running_model_call(state, turn, call)?;
    make_ids_unique(state, &mut response.content);
    let mut usage = running.usage;
    usage.add(&response.usage);
    let after = match response_effect(state, &response) {
        ResponseEffect::Resume | ResponseEffect::Continue => Vec::new(),
        ResponseEffect::Stop(stop) => vec![EventKind::TurnFinished { turn, stop, usage }],
        ResponseEffect::RunTools => {
            let calls: Vec<ToolCall> =
                response.content.iter().filter_map(Block::tool_call).cloned().collect();
            match too_many_calls(running, &calls) {
                None => Vec::new(),
                Some(limit) => {
                    let stop = TurnStop::Limit(limit);
                    let mut kinds: Vec<EventKind> =
                        calls.iter().map(|call| skipped_result(&call.id, &stop)).collect();
                    kinds.push(EventKind::TurnFinished { turn, stop, usage });
                    kinds
                }
            }
        }
    };
    let container = response.container.as_ref().or(state.container());
    let lost = container.filter(|_| container_is_gone(&response.content)).map(|container| {
        EventKind::ContainerLost { turn, container: container.clone(), note: Block::text(CONTAINER_LOST) }
    });
    let answered = EventKind::ModelAnswered { turn, call, response: Box::new(response) };
    Ok(std::iter::once(answered).chain(lost).chain(after).collect())
}

fn too_many_calls(turn: &RunningTurn, calls: &[ToolCall]) -> Option<Limit> {
    let total = u64::from(turn.tool_calls).saturating_add(calls.len() as u64);
    if total > u64::from(turn.limits.tool_calls) {
        Some(Limit::ToolCalls)
    } else if count_repeats(turn, calls).values().any(|count| *count > turn.limits.identical_calls) {
        Some(Limit::IdenticalCalls)
    } else {
        None
    }
}

/// Gives a call with a duplicate id a fresh one; the other bytes of its block stay unchanged.
///
/// The service refuses a request with duplicate ids, and some gateways number the calls of each response from zero.
fn make_ids_unique(state: &SessionState, content: &mut [Block]) {
    let mut here: HashSet<CallId> = HashSet::new();
    for block in content {
        let Some(call) = block.tool_call() else { continue };
        let taken = |id: &CallId| state.call_ids.contains(id) || here.contains(id);
        let mut id = call.id.clone();
        // Starting from the number of ids keeps this loop short, also when a model makes thousands of calls.
        let mut number = state.call_ids.len().saturating_add(here.len());
        while taken(&id) {
            id = CallId::new(format!("{}_{number}", call.id));
            number = number.saturating_add(1);
        }
        if id != call.id {
            *block = block.with_call_id(&id);
        }
        here.insert(id);
    }
}

/// The replacement of a block that the service refused.
///
/// A result is replaced by an error result, so that its call keeps a result. A call cannot be replaced, because its result needs it.
pub(super) fn replacement(
    state: &SessionState,
    message: usize,
    block: usize,
    why: &str,
) -> Result<Block, Rejection> {
    let refused = Rejection::NotReplaceable { message, block };
    let content = state.messages.get(message).and_then(|message| message.content.get(block));
    let Some(content) = content.filter(|_| !state.replaced.contains(&(message, block))) else {
        return Err(refused);
    };
    let why: String = why.chars().take(500).collect();
    let text = format!("[left out: the service refused this content: {why}]");
    match content.kind() {
        BlockKind::ToolUse(_) => Err(refused),
        BlockKind::ToolResult { tool_use_id, .. } => {
            Ok(Block::tool_result(&ToolResult::error(&CallId::new(tool_use_id.as_str()), text)))
        }
        _ => Ok(Block::text(text)),
    }
}

/// The results of a response's calls that never run, for readers of events without a state.
pub(crate) fn skipped_results(response: &Response) -> Vec<ToolResult> {
    let runs =
        matches!(response.stop_reason, StopReason::ToolUse | StopReason::PauseTurn | StopReason::Compaction);
    if runs {
        return Vec::new();
    }
    let why = skip_reason(&response.stop_reason);
    response
        .content
        .iter()
        .filter_map(Block::tool_call)
        .map(|call| ToolResult::error(&call.id, why.as_str()))
        .collect()
}
