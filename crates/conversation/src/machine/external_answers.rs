//! The commands that answer a tool call from outside: with a decision, a result or input.
//!
//! Answers may come in any order, and more than once: the same answer changes nothing, and another one is rejected. A turn in which
//! nothing can run is parked. After a partial answer it stays parked, unless a call may run now.

use conjure_base::{CallId, Digest};

use super::checks::{running_turn, wrong_status};
use super::tool_calls::denied_result;
use crate::events::call_outcome::Decision;
use crate::events::event::EventKind;
use crate::machine::command::Rejection;
use crate::state::open_call::CallStatus;
use crate::state::session_state::SessionState;
use crate::tools::call_answer::{decision_digest, input_digest, result_digest};
use crate::tools::input_request::InputAnswers;
use crate::tools::tool::{ResultContent, ToolEnding, ToolResult};

pub(super) fn decide_approval(
    state: &SessionState,
    call: CallId,
    decision: Decision,
) -> Result<Vec<EventKind>, Rejection> {
    match state.open_call(&call).map(|open| &open.status) {
        Some(CallStatus::AwaitingApproval { .. }) => {}
        status => {
            let given = state.answers.get(&call).and_then(|answers| answers.decision);
            return answered_before(call, status, given, || decision_digest(&decision));
        }
    }
    let denied = match &decision {
        Decision::Allow | Decision::Grant { .. } => None,
        Decision::Deny { reason } => Some(denied_result(&call, reason)),
    };
    let still_parked = if denied.is_some() { remaining_actions(state, &call) } else { None };
    Ok(std::iter::once(EventKind::ApprovalDecided { call, decision })
        .chain(denied)
        .chain(still_parked)
        .collect())
}

pub(super) fn provide_result(
    state: &SessionState,
    call: CallId,
    content: Vec<ResultContent>,
    is_error: bool,
) -> Result<Vec<EventKind>, Rejection> {
    let mut result = ToolResult {
        tool_use_id: call.clone(),
        content,
        is_error,
        ending: ToolEnding::Returned,
        active_skills: None,
        fetched: Vec::new(),
    };
    // The service refuses an error without content.
    if is_error && result.has_no_content() {
        result = ToolResult::error(&call, "the tool failed and did not say why");
    }
    let from = match state.open_call(&call).map(|open| &open.status) {
        Some(CallStatus::AwaitingResult { from, .. }) => *from,
        status => {
            let given = state.answers.get(&call).and_then(|answers| answers.result);
            return answered_before(call, status, given, || result_digest(&result.content, is_error));
        }
    };
    let still_parked = remaining_actions(state, &call);
    Ok(std::iter::once(EventKind::ResultProvided { result, from }).chain(still_parked).collect())
}

pub(super) fn provide_input(
    state: &SessionState,
    call: CallId,
    round: u32,
    answers: InputAnswers,
) -> Result<Vec<EventKind>, Rejection> {
    match state.open_call(&call).map(|open| &open.status) {
        Some(CallStatus::AwaitingInput { round: asked, request }) if *asked == round => {
            let asked = || request.questions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let Some(answers) = request.complete(answers) else {
                return Err(Rejection::UnknownQuestion { call, asked: asked() });
            };
            // The call may run now, so the turn is not parked any more.
            Ok(vec![EventKind::InputProvided { call, round, answers }])
        }
        status => {
            let given = state.answers.get(&call).and_then(|answers| answers.inputs.get(&round).copied());
            answered_before(call, status, given, || input_digest(&answers))
        }
    }
}

/// Parks the turn.
pub(super) fn await_action(state: &SessionState) -> Result<Vec<EventKind>, Rejection> {
    running_turn(state)?;
    let open = state.open_calls();
    let runs = open.iter().any(|open| matches!(open.status, CallStatus::Started { .. }));
    let calls = waiting_calls(state, None);
    if runs || calls.is_empty() {
        return Err(Rejection::NothingAwaited);
    }
    Ok(vec![EventKind::ActionRequired { calls }])
}

/// The outcome of answering a call that does not wait for an answer. The same answer as before changes nothing.
fn answered_before(
    call: CallId,
    status: Option<&CallStatus>,
    given: Option<Digest>,
    answer: impl FnOnce() -> Digest,
) -> Result<Vec<EventKind>, Rejection> {
    match (given, status) {
        (Some(given), _) if given == answer() => Ok(Vec::new()),
        (Some(_), _) => Err(Rejection::AnsweredDifferently { call }),
        (None, Some(status)) => Err(wrong_status(call, status)),
        (None, None) => Err(Rejection::NoOpenCall { call }),
    }
}

/// The event that keeps a parked turn parked after the call `answered` got its answer; `None` if a call may run now, or none waits.
fn remaining_actions(state: &SessionState, answered: &CallId) -> Option<EventKind> {
    let is_parked = state.turn.as_ref().is_some_and(|turn| turn.is_parked);
    let may_run = state.open_calls().iter().any(|open| {
        matches!(open.status, CallStatus::New | CallStatus::Approved | CallStatus::Started { .. })
    });
    let calls = waiting_calls(state, Some(answered));
    (is_parked && !may_run && !calls.is_empty()).then_some(EventKind::ActionRequired { calls })
}

fn waiting_calls(state: &SessionState, without: Option<&CallId>) -> Vec<CallId> {
    let open = state.open_calls().iter();
    open.filter(|open| open.status.is_waiting() && Some(&open.call.id) != without)
        .map(|open| open.call.id.clone())
        .collect()
}
