//! The recorded facts about a tool call: the decision, who provides its result, and how it ended.

use serde::{Deserialize, Serialize};

use crate::session::grant::Grant;

/// An approver's decision on a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call may run.
    Allow,
    /// The call and later ones may run.
    Grant {
        /// Which calls, and for how long.
        grant: Grant,
    },
    /// The call may not run; the model reads the reason.
    Deny {
        /// The reason.
        reason: String,
    },
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallOutcome {
    /// The tool ran and returned a result, successful or not.
    Finished,
    /// The policy or an approver denied it; it did not run.
    Denied,
    /// It never ran: the response was truncated, a limit was reached, or the turn ended before.
    #[serde(rename = "not_run")]
    Skipped,
    /// It was cancelled while it ran; it may have had effects.
    Cancelled,
    /// It was running when its driver ended; its effects are not known.
    Unknown,
    /// Its result was not provided in time.
    Expired,
}

/// Who provides the result of a tool call that does not run in the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResultFrom {
    /// The application that uses the session.
    Client,
    /// A worker that runs the session's tools.
    Worker,
    /// A person who is asked for input.
    Input,
}
