//! Lookups and checks that several commands share.

use conjure_base::{CallId, TurnId};

use crate::content::block::{Block, BlockKind};
use crate::machine::command::Rejection;
use crate::state::open_call::{CallStatus, OpenCall};
use crate::state::running_turn::{RunningTurn, TurnPhase};
use crate::state::session_state::SessionState;

pub(super) fn running_turn(state: &SessionState) -> Result<&RunningTurn, Rejection> {
    state.turn.as_ref().ok_or(Rejection::NoTurn)
}

/// The running turn, if this is its running model call.
pub(super) fn running_model_call(
    state: &SessionState,
    turn: TurnId,
    call: u32,
) -> Result<&RunningTurn, Rejection> {
    let running = running_turn(state)?;
    if running.id == turn
        && running.model_calls == call
        && matches!(running.phase, TurnPhase::AwaitingModel(_))
    {
        Ok(running)
    } else {
        Err(Rejection::StaleModelCall)
    }
}

pub(super) fn open_call<'a>(state: &'a SessionState, call: &CallId) -> Result<&'a OpenCall, Rejection> {
    state.open_call(call).ok_or_else(|| Rejection::NoOpenCall { call: call.clone() })
}

pub(super) const fn wrong_status(call: CallId, status: &CallStatus) -> Rejection {
    Rejection::WrongStatus { call, status: status.describe() }
}

/// Checks the input of the user: no blocks of the model or of a tool. Leaves out blank texts, which the service refuses.
pub(crate) fn user_input(input: Vec<Block>) -> Result<Vec<Block>, Rejection> {
    let mut kept = Vec::with_capacity(input.len());
    for block in input {
        let foreign = match block.kind() {
            BlockKind::Text(text) if text.trim().is_empty() => continue,
            BlockKind::ToolUse(_) => "tool_use",
            BlockKind::ToolResult { .. } => "tool_result",
            BlockKind::Thinking(_) => "thinking",
            _ => {
                kept.push(block);
                continue;
            }
        };
        return Err(Rejection::ForeignBlock { kind: foreign.to_owned() });
    }
    Ok(kept)
}
