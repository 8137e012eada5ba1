//! The commands that start and finish tool calls.

use std::collections::HashSet;

use conjure_base::CallId;

use super::checks::{open_call, wrong_status};
use crate::events::call_outcome::CallOutcome;
use crate::events::event::EventKind;
use crate::events::turn_stop::TurnStop;
use crate::machine::command::{Rejection, StartedCall};
use crate::state::open_call::CallStatus;
use crate::state::session_state::SessionState;
use crate::tools::input_request::{INPUT_ROUNDS, InputRequest};
use crate::tools::tool::ToolResult;

pub(super) fn denied_result(call: &CallId, reason: &str) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(call, format!("denied: {reason}")),
        outcome: CallOutcome::Denied,
    }
}

pub(super) fn start_tools(
    state: &SessionState,
    calls: Vec<StartedCall>,
) -> Result<Vec<EventKind>, Rejection> {
    let mut named = HashSet::new();
    for started in &calls {
        match &open_call(state, &started.call)?.status {
            CallStatus::New | CallStatus::Approved if named.insert(&started.call) => {}
            CallStatus::New | CallStatus::Approved => {
                return Err(Rejection::WrongStatus { call: started.call.clone(), status: "named twice" });
            }
            other => return Err(wrong_status(started.call.clone(), other)),
        }
    }
    Ok(calls
        .into_iter()
        .map(|StartedCall { call, idempotent }| EventKind::ToolStarted { call, idempotent })
        .collect())
}

pub(super) fn finish_tool(
    state: &SessionState,
    mut result: ToolResult,
    outcome: CallOutcome,
) -> Result<Vec<EventKind>, Rejection> {
    match &open_call(state, &result.tool_use_id)?.status {
        CallStatus::Started { .. } => {}
        other => return Err(wrong_status(result.tool_use_id, other)),
    }
    // The service refuses an error without content.
    if result.is_error && result.has_no_content() {
        result = ToolResult::error(&result.tool_use_id, "the tool failed and did not say why");
    }
    Ok(vec![EventKind::ToolFinished { result, outcome }])
}

/// Ends the run of a call with questions.
pub(super) fn require_input(
    state: &SessionState,
    call: CallId,
    request: Box<InputRequest>,
) -> Result<Vec<EventKind>, Rejection> {
    let open = open_call(state, &call)?;
    let CallStatus::Started { .. } = open.status else { return Err(wrong_status(call, &open.status)) };
    let refusal = if request.questions.is_empty() {
        "the tool asked for input without a question".to_owned()
    } else if open.rounds >= INPUT_ROUNDS {
        format!("the tool asked for input more than {INPUT_ROUNDS} times, and was not asked again")
    } else {
        return Ok(vec![EventKind::InputRequired { call, round: open.rounds.saturating_add(1), request }]);
    };
    Ok(vec![EventKind::ToolFinished {
        result: ToolResult::error(&call, refusal),
        outcome: CallOutcome::Finished,
    }])
}

/// The result of a call that has run, has asked a person, and ends before it runs again.
pub(super) fn unanswered_result(call: &CallId, stop: &TurnStop) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(
            call,
            format!("ended while the tool waited for input: {stop}; it may have done a part"),
        ),
        outcome: CallOutcome::Cancelled,
    }
}

pub(super) fn skipped_result(call: &CallId, stop: &TurnStop) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(call, format!("not run: {stop}")),
        outcome: CallOutcome::Skipped,
    }
}
