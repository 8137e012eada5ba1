//! The tool calls of the last response that lack a result, and what each waits for.

use std::sync::Arc;

use conjure_base::Timestamp;

use crate::events::call_outcome::ResultFrom;
use crate::tools::input_request::{InputRequest, ProvidedInput};
use crate::tools::tool::{ToolCall, ToolResult};

/// A tool call of the last response, and its status.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// The call.
    pub call: ToolCall,
    /// Its status.
    pub status: CallStatus,
    /// How often it has asked for input.
    pub(crate) rounds: u32,
    /// The answers and the state that the call gets when it runs again.
    pub(crate) provided_input: Option<ProvidedInput>,
}

/// The status of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallStatus {
    /// It is not authorised yet.
    New,
    /// It waits for an approval.
    AwaitingApproval {
        /// The question to the person.
        reason: String,
    },
    /// It may run; the policy is not asked again.
    Approved,
    /// It waits for its result from outside.
    AwaitingResult {
        /// Who provides it.
        from: ResultFrom,
        /// The time at which the call ends with an error if its result was not provided; `None`: never.
        deadline: Option<Timestamp>,
    },
    /// It has asked a person, and runs again when it has the answers.
    AwaitingInput {
        /// How often it has asked, this time included.
        round: u32,
        /// The questions.
        request: Arc<InputRequest>,
    },
    /// It is running, or was running when its driver ended.
    Started {
        /// Whether the call can be repeated without a further effect.
        idempotent: bool,
    },
    /// It has its result.
    Finished(ToolResult),
}

/// A tool call that waits for an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// The call.
    pub call: ToolCall,
    /// The question to the person.
    pub reason: String,
}

/// A tool call that waits for an action from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingAction {
    /// The call.
    pub call: ToolCall,
    /// What it waits for.
    pub need: ActionNeed,
}

/// What a tool call waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionNeed {
    /// A decision whether it may run.
    Approval {
        /// The question to the person.
        reason: String,
    },
    /// Its result, from outside.
    Result {
        /// Who provides it.
        from: ResultFrom,
        /// The time at which the call ends with an error if its result was not provided; `None`: never.
        deadline: Option<Timestamp>,
    },
    /// Answers of a person.
    Input {
        /// How often the call has asked, this time included. The answer names it.
        round: u32,
        /// The questions.
        request: Arc<InputRequest>,
    },
}

impl CallStatus {
    /// Whether the call waits for an action from outside.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(
            self,
            Self::AwaitingApproval { .. } | Self::AwaitingResult { .. } | Self::AwaitingInput { .. }
        )
    }

    pub(crate) fn action_need(&self) -> Option<ActionNeed> {
        match self {
            Self::AwaitingApproval { reason } => Some(ActionNeed::Approval { reason: reason.clone() }),
            Self::AwaitingResult { from, deadline } => {
                Some(ActionNeed::Result { from: *from, deadline: *deadline })
            }
            Self::AwaitingInput { round, request } => {
                Some(ActionNeed::Input { round: *round, request: Arc::clone(request) })
            }
            _ => None,
        }
    }

    pub(crate) const fn describe(&self) -> &'static str {
        match self {
            Self::New => "not started",
            Self::AwaitingApproval { .. } => "waiting for a person",
            Self::Approved => "approved and not started",
            Self::AwaitingResult { .. } => "waiting for its result",
            Self::AwaitingInput { .. } => "waiting for the answers to its questions",
            Self::Started { .. } => "running",
            Self::Finished(_) => "finished",
        }
    }
}
