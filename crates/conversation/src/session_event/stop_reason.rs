//! Why a session is idle, and what its calls wait for.

use std::collections::BTreeMap;

use conjure_base::{CallId, Timestamp};
use serde::Serialize;

use super::event_id::EventId;
use super::times::rfc_3339_or_null;
use crate::content::stop_reason::StopReason;
use crate::events::call_outcome::ResultFrom;
use crate::events::turn_stop::TurnStop;
use crate::model::ModelErrorKind;
use crate::state::limits::Limit;
use crate::state::open_call::ActionNeed;
use crate::tools::input_request::InputQuestion;

/// Why a session is idle.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionStopReason {
    /// The model ended its turn.
    EndTurn,
    /// These calls wait for an approval or a result. Each may be answered by a different person or program, in any order.
    RequiresAction {
        /// The ids of the calls' events.
        event_ids: Vec<EventId>,
        /// The same calls, with what each waits for.
        actions: Vec<RequiredAction>,
    },
    /// The model call failed for good.
    RetriesExhausted,
    /// The process ended during a call that the service may have acted on. The outcome is not known, and the call was not repeated.
    OutcomeUnknown,
    /// A limit was reached.
    BudgetReached {
        /// The limit.
        limit: Limit,
    },
    /// The model refused.
    Refusal,
    /// The response was truncated.
    Cut {
        /// The stop reason; `null` when the service sent none.
        reason: StopReason,
    },
    /// It was interrupted.
    Interrupted,
    /// The deadline of the run passed.
    Deadline,
}

/// What a tool call waits for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequiredAction {
    /// The `id` of the call's event.
    pub event_id: EventId,
    /// The model's id of the call.
    pub call_id: CallId,
    /// What it waits for.
    #[serde(flatten)]
    pub need: RequiredNeed,
}

/// What a tool call waits for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "needs", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequiredNeed {
    /// A decision whether it may run.
    Approval {
        /// The question to the approver.
        reason: String,
    },
    /// Its result.
    Result {
        /// Who provides it.
        from: ResultFrom,
        /// The time at which the call ends with an error if its result was not provided, in RFC 3339; null: never.
        #[serde(serialize_with = "rfc_3339_or_null")]
        deadline: Option<Timestamp>,
    },
    /// Answers of a person to the tool's questions.
    Input {
        /// How often the call has asked, this time included.
        round: u32,
        /// Who asks.
        asked_by: String,
        /// The questions by their ids.
        questions: BTreeMap<String, InputQuestion>,
    },
}

/// Whether the policy allows a tool call to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluatedPermission {
    /// It may.
    Allow,
    /// A person decides.
    Ask,
    /// It may not.
    Deny,
}

impl From<ActionNeed> for RequiredNeed {
    fn from(need: ActionNeed) -> Self {
        match need {
            ActionNeed::Approval { reason } => Self::Approval { reason },
            ActionNeed::Result { from, deadline } => Self::Result { from, deadline },
            ActionNeed::Input { round, request } => Self::Input {
                round,
                asked_by: request.asked_by.clone(),
                questions: request.questions.clone(),
            },
        }
    }
}

impl From<&TurnStop> for SessionStopReason {
    fn from(stop: &TurnStop) -> Self {
        match stop {
            TurnStop::Answered(_) => Self::EndTurn,
            TurnStop::Truncated(reason) => Self::Cut { reason: reason.clone() },
            TurnStop::Refused => Self::Refusal,
            TurnStop::Limit(limit) => Self::BudgetReached { limit: *limit },
            TurnStop::ModelFailed(error) if error.kind == ModelErrorKind::OutcomeUnknown => {
                Self::OutcomeUnknown
            }
            TurnStop::ModelFailed(_) => Self::RetriesExhausted,
            TurnStop::Interrupted => Self::Interrupted,
            TurnStop::Deadline => Self::Deadline,
        }
    }
}
