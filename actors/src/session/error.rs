//! The errors of a session.

use std::time::Duration;

use conjure_artifact::{ArtifactError, OutputError};
use conjure_base::{SessionId, TenantId, TimedOut};
use conjure_conversation::{EventLogError, Rejection};
use conjure_sandbox::SandboxErrorKind;

use crate::artifacts::SharedArtifactError;
use crate::supervision::{CallError, Reply, RequestError, StartError};
use crate::tenants::QuotaExceeded;

/// The reply to a request to a session.
pub type ReplyTo<T> = Reply<Result<T, SessionError>>;

/// Why a session did not do what was requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// The id in the request.
        session: SessionId,
    },
    /// The conversation's rules do not allow the request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The event is not the call of a tool in this session.
    #[error(
        "the event `{event}` is not the call of a tool in this session; use the `id` of an `agent.tool_use` or \
         `agent.custom_tool_use` event"
    )]
    NoSuchCall {
        /// The id in the request.
        event: String,
    },
    /// No turn runs that could be steered. Send the message instead.
    #[error("no turn is running any more; send the message instead")]
    NotRunning,
    /// A queue is full. Nothing was done.
    #[error("{what} is full{}; try again in {retry_after:?}", limit_text(*limit))]
    Overloaded {
        /// The queue that is full.
        what: &'static str,
        /// Its configured capacity, if there is one.
        limit: Option<usize>,
        /// How long to wait before another attempt.
        retry_after: Duration,
    },
    /// The tenant's quota is used up, or the request does not fit in it. Nothing was done.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// The tenant has a disk quota, and its disk usage cannot be measured. Nothing was done.
    #[error("the tenant `{tenant}` cannot store more, because its disk usage cannot be measured: {reason}")]
    UsageUnknown {
        /// The tenant.
        tenant: TenantId,
        /// What prevents the measurement.
        reason: &'static str,
    },
    /// The runtime is draining and accepts no new work.
    #[error("the runtime is draining and starts no turns")]
    Draining,
    /// The runtime has stopped or is about to.
    #[error("the runtime is shutting down")]
    ShuttingDown,
    /// The journal did not record the request, or it is unknown whether it did. The session is loaded again before the
    /// next message.
    #[error("the journal did not record it: {reason}")]
    Journal {
        /// The journal's error.
        reason: String,
    },
    /// Another process has taken over the session.
    #[error("the session was taken over: {reason}")]
    TakenOver {
        /// The journal's error.
        reason: String,
    },
    /// The session ended before it answered. It is unknown whether the request was recorded; the session's events show it.
    #[error("the session ended before it answered; what it recorded is in its events")]
    Lost,
    /// There was no answer before the deadline. The request may still be carried out.
    #[error("the session did not answer before the deadline")]
    DeadlinePassed,
    /// The session could not be started.
    #[error("the session did not start: {reason}")]
    NotStarted {
        /// The reason.
        reason: String,
    },
    /// The session failed so often in a row that it is not started any more. `Session::clear_quarantine` allows it
    /// again.
    #[error(
        "the session is in quarantine after {failures} failures in a row, the last: {last}; mend the cause, then \
         lift the quarantine"
    )]
    Quarantined {
        /// The number of failures.
        failures: u32,
        /// The last failure.
        last: String,
    },
    /// The session lacks what the request needs.
    #[error("the session has {what}")]
    Unsupported {
        /// What is missing.
        what: &'static str,
    },
    /// The session cannot have this model, and keeps its current one.
    #[error("the session cannot use the model `{model}`: {reason}")]
    ModelRefused {
        /// The name of the requested model.
        model: String,
        /// The reason.
        reason: String,
    },
    /// The session's files could not be listed.
    #[error("the session's files cannot be listed: {reason}")]
    Files {
        /// The kind of the failure.
        kind: SandboxErrorKind,
        /// The reason.
        reason: String,
    },
    /// A produced file cannot be read.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An artifact cannot be read, or was not registered.
    #[error(transparent)]
    Artifact(#[from] SharedArtifactError),
}

impl SessionError {
    /// Whether it is certain that nothing was done. Then the same request may be sent again later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Overloaded { .. } => true,
            Self::Quota(exceeded) => exceeded.is_retryable(),
            Self::Artifact(failure) => failure.error().is_retryable(),
            _ => false,
        }
    }

    /// How long to wait before another attempt, if a queue was full. `None` for every other error, also for a used-up
    /// quota.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    pub(crate) const fn overloaded(what: &'static str) -> Self {
        Self::Overloaded { what, limit: None, retry_after: Duration::from_millis(250) }
    }

    /// The error for a full message queue.
    pub(crate) const fn queue_full(limit: usize) -> Self {
        Self::Overloaded {
            what: "the queue of messages that wait for their turn",
            limit: Some(limit),
            retry_after: Duration::from_secs(1),
        }
    }

    pub(crate) fn from_start_error(error: &StartError) -> Self {
        match error {
            StartError::Request(RequestError::DeadlinePassed(_)) => Self::DeadlinePassed,
            StartError::Request(RequestError::ShuttingDown(_)) => Self::ShuttingDown,
            other => Self::NotStarted { reason: other.to_string() },
        }
    }
}

fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(String::new, |limit| format!(", at {limit}"))
}

impl From<ArtifactError> for SessionError {
    fn from(error: ArtifactError) -> Self {
        Self::Artifact(error.into())
    }
}

impl From<EventLogError> for SessionError {
    fn from(error: EventLogError) -> Self {
        match error {
            EventLogError::Fenced { reason } => Self::TakenOver { reason },
            other => Self::Journal { reason: other.to_string() },
        }
    }
}

impl From<TimedOut> for SessionError {
    fn from(TimedOut: TimedOut) -> Self {
        Self::DeadlinePassed
    }
}

impl From<CallError> for SessionError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Full => Self::overloaded("the session's queue of messages"),
            CallError::NotRunning | CallError::Lost => Self::Lost,
            CallError::DeadlinePassed => Self::DeadlinePassed,
        }
    }
}
