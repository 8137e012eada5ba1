//! Recovery after a driver has ended, and the end of a turn.

use conjure_base::{CallId, Timestamp};

use super::tool_calls::{skipped_result, unanswered_result};
use crate::content::block::Block;
use crate::events::call_outcome::CallOutcome;
use crate::events::event::EventKind;
use crate::events::turn_stop::TurnStop;
use crate::model::{ModelError, ModelErrorKind, SideEffects};
use crate::state::open_call::CallStatus;
use crate::state::running_turn::{RunningTurn, TurnPhase};
use crate::state::session_state::SessionState;
use crate::tools::tool::ToolResult;

/// The note to the model after a call with unknown side effects.
const EFFECTS_UNKNOWN: &str = "[The last request was under way when it broke off; what the service did for it is not known. Check before you \
    repeat it.]";

/// The error that ends a turn after a call with unknown side effects.
const OUTCOME_UNKNOWN: &str = "the call was under way when its host ended, and the service may have acted on it: whether it did, and \
    what came of it, is not known, so it was not sent again; send a message to go on, or an empty one to ask once more";

pub(super) fn recover(state: &SessionState, now: Timestamp) -> Vec<EventKind> {
    let Some(turn) = &state.turn else { return Vec::new() };
    match &turn.phase {
        TurnPhase::CallModel => Vec::new(),
        TurnPhase::AwaitingModel(SideEffects::Possible) => {
            let error = ModelError::new(ModelErrorKind::OutcomeUnknown, OUTCOME_UNKNOWN);
            unknown_effects(turn, error)
        }
        TurnPhase::AwaitingModel(SideEffects::None) => {
            vec![EventKind::ModelCallAbandoned { turn: turn.id, call: turn.model_calls }]
        }
        TurnPhase::Compacting(_) => {
            vec![EventKind::CompactionAbandoned { turn: turn.id, compaction: turn.compactions }]
        }
        TurnPhase::Finishing(stop) => vec![turn_finished(turn, stop.clone())],
        TurnPhase::Tools(calls) => calls
            .iter()
            .filter_map(|open| match open.status {
                CallStatus::Started { idempotent: true } => {
                    Some(EventKind::ToolAbandoned { call: open.call.id.clone() })
                }
                CallStatus::Started { idempotent: false } => Some(unknown_outcome_result(&open.call.id)),
                CallStatus::AwaitingResult { deadline: Some(deadline), .. } if deadline <= now => {
                    Some(expired_result(&open.call.id))
                }
                _ => None,
            })
            .collect(),
    }
}

/// Ends the turn after a model call with unknown side effects. The note reaches the model with its next call.
pub(super) fn unknown_effects(turn: &RunningTurn, error: ModelError) -> Vec<EventKind> {
    vec![
        EventKind::ModelCallFailed { turn: turn.id, call: turn.model_calls, error: error.clone() },
        EventKind::NoteAdded { note: Block::text(EFFECTS_UNKNOWN) },
        turn_finished(turn, TurnStop::ModelFailed(error)),
    ]
}

/// Ends the turn. Every open call gets its result first. A note tells the model of a model call with unknown side effects.
pub(super) fn finish_turn(state: &SessionState, turn: &RunningTurn, stop: TurnStop) -> Vec<EventKind> {
    let mut kinds: Vec<EventKind> = state
        .open_calls()
        .iter()
        .filter_map(|open| match open.status {
            CallStatus::Finished(_) => None,
            CallStatus::Started { .. } => Some(unknown_outcome_result(&open.call.id)),
            _ if open.rounds > 0 => Some(unanswered_result(&open.call.id, &stop)),
            _ => Some(skipped_result(&open.call.id, &stop)),
        })
        .collect();
    match turn.phase {
        TurnPhase::Compacting(_) => {
            kinds.push(EventKind::CompactionAbandoned { turn: turn.id, compaction: turn.compactions });
        }
        TurnPhase::AwaitingModel(SideEffects::Possible) => {
            kinds.push(EventKind::NoteAdded { note: Block::text(EFFECTS_UNKNOWN) });
        }
        _ => {}
    }
    kinds.push(turn_finished(turn, stop));
    kinds
}

pub(super) const fn turn_finished(turn: &RunningTurn, stop: TurnStop) -> EventKind {
    EventKind::TurnFinished { turn: turn.id, stop, usage: turn.usage }
}

fn expired_result(call: &CallId) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(call, "nobody provided the result of this call in time"),
        outcome: CallOutcome::Expired,
    }
}

fn unknown_outcome_result(call: &CallId) -> EventKind {
    EventKind::ToolFinished {
        result: ToolResult::error(
            call,
            "interrupted, outcome unknown: the call was running when its driver ended, and what it did is not \
             known; check before you repeat it",
        ),
        outcome: CallOutcome::Unknown,
    }
}
