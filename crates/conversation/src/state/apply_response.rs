//! How the model's response changes the state.

use std::collections::BTreeMap;

use conjure_base::Digest;

use crate::content::block::{Block, BlockKind};
use crate::content::message::Role;
use crate::content::stop_reason::{AfterResponse, StopReason};
use crate::events::turn_stop::TurnStop;
use crate::model::Response;
use crate::state::open_call::{CallStatus, OpenCall};
use crate::state::running_turn::{RunningTurn, TurnPhase};
use crate::state::session_state::{LastMessage, SessionState, is_sendable};
use crate::tools::server_tools::{NOT_AWAITED, is_server_tool_call};
use crate::tools::tool::{ToolCall, ToolResult};

/// The consequence of a response. It is decided before the response is applied.
pub(crate) enum ResponseEffect {
    /// Run its tool calls.
    RunTools,
    /// Send it back unchanged.
    Resume,
    /// It is complete, but the user has added input meanwhile.
    Continue,
    /// It ends the turn.
    Stop(TurnStop),
}

pub(crate) fn response_effect(state: &SessionState, response: &Response) -> ResponseEffect {
    let has_calls = response.content.iter().any(|block| block.tool_call().is_some());
    match response.stop_reason.after_response() {
        // A paused response cannot be resumed before its tool calls have results: the service refuses a call without a result. The
        // response is complete so far, so the calls run, and their results resume it.
        AfterResponse::RunTools | AfterResponse::Resume if has_calls => ResponseEffect::RunTools,
        AfterResponse::Resume => ResponseEffect::Resume,
        AfterResponse::RunTools | AfterResponse::Stop if state.steering.is_empty() => {
            ResponseEffect::Stop(TurnStop::Answered(response.stop_reason.clone()))
        }
        AfterResponse::RunTools | AfterResponse::Stop => ResponseEffect::Continue,
        AfterResponse::StopWithoutTools => ResponseEffect::Stop(match &response.stop_reason {
            StopReason::Refusal => TurnStop::Refused,
            reason => TurnStop::Truncated(reason.clone()),
        }),
    }
}

/// Why the calls of a response that ends its turn do not run. The model reads this text.
pub(crate) fn skip_reason(reason: &StopReason) -> String {
    match reason.after_response() {
        AfterResponse::StopWithoutTools => format!("not run: the answer was cut ({reason})"),
        _ => format!("not run: the answer said that it was complete ({reason})"),
    }
}

/// Adds the response to the history, and sets the turn's next phase.
pub(crate) fn apply_response(state: &mut SessionState, response: &Response) {
    let consequence = response_effect(state, response);
    let is_cut = response.stop_reason.after_response() == AfterResponse::StopWithoutTools;
    let may_say = |block: &&Block| is_sendable(block) && !(is_cut && is_unsigned_thinking(block));
    let content: Vec<Block> = response.content.iter().filter(may_say).cloned().collect();
    let calls: Vec<ToolCall> = content.iter().filter_map(Block::tool_call).cloned().collect();
    state.usage.add(&response.usage);
    state.history_size.record_input(response.usage.total_input());
    state.has_run_tools |= response.container.is_some() || content.iter().any(is_server_tool_call);
    if response.container.is_some() {
        state.container.clone_from(&response.container);
    }
    state.call_ids.extend(calls.iter().map(|call| call.id.clone()));
    // A native form that holds more than the kept blocks must not be sent back.
    let native = response.native.clone().filter(|_| !is_cut && content.len() == response.content.len());
    state.push_assistant(content, native);
    // An empty response adds no message, so the last message is not the assistant's.
    if is_cut && state.last_role() == Some(Role::Assistant) {
        state.replace_unfinished(NOT_AWAITED);
    }
    state.view.record_response();
    state.last_message = LastMessage::Complete;
    let Some(turn) = &mut state.turn else { return };
    turn.usage.add(&response.usage);
    match consequence {
        ResponseEffect::RunTools => {
            turn.tool_calls = turn.tool_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
            turn.repeats = count_repeats(turn, &calls);
            let open = |call| OpenCall { call, status: CallStatus::New, rounds: 0, provided_input: None };
            turn.phase = TurnPhase::Tools(calls.into_iter().map(open).collect());
        }
        ResponseEffect::Resume => {
            turn.pauses = turn.pauses.saturating_add(1);
            turn.phase = TurnPhase::CallModel;
            if state.last_role() == Some(Role::Assistant) {
                state.last_message = LastMessage::Paused;
            }
        }
        ResponseEffect::Continue => {
            turn.phase = TurnPhase::CallModel;
            push_skipped_results(state, &calls, &response.stop_reason);
            state.flush_steering();
        }
        ResponseEffect::Stop(stop) => {
            turn.phase = TurnPhase::Finishing(stop);
            push_skipped_results(state, &calls, &response.stop_reason);
        }
    }
}

/// Whether this is thinking that was truncated before its signature. The service refuses such a block in a request.
fn is_unsigned_thinking(block: &Block) -> bool {
    #[derive(serde::Deserialize)]
    struct Signed {
        #[serde(default)]
        signature: String,
    }
    matches!(block.kind(), BlockKind::Thinking(_))
        && serde_json::from_str::<Signed>(block.json()).is_ok_and(|signed| signed.signature.is_empty())
}

/// Adds the results of calls that never run.
fn push_skipped_results(state: &mut SessionState, calls: &[ToolCall], reason: &StopReason) {
    let why = skip_reason(reason);
    let results = calls.iter().map(|call| Block::tool_result(&ToolResult::error(&call.id, why.as_str())));
    state.push_user(results.collect());
}

/// In how many consecutive responses each of these calls was made, this one included.
pub(crate) fn count_repeats(turn: &RunningTurn, calls: &[ToolCall]) -> BTreeMap<Digest, u32> {
    calls
        .iter()
        .map(|call| {
            let key = Digest::of_bytes(format!("{}\0{}", call.name, call.input.get()).as_bytes());
            (key, turn.repeats.get(&key).map_or(1, |count| count.saturating_add(1)))
        })
        .collect()
}
