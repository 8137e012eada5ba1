//! Why a session did not do what it was asked.

use std::time::Duration;

use conjure_artifact::{ArtifactError, OutputError};
use conjure_base::{SessionId, TenantId};
use conjure_conversation::{EventLogError, Rejection};
use conjure_sandbox::SandboxErrorKind;

use crate::artifacts::SharedArtifactError;
use crate::supervision::{CallError, RequestError, StartError};
use crate::tenants::QuotaExceeded;

/// A failure of a session, as its host sees it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// What was asked for.
        session: SessionId,
    },
    /// The conversation does not allow it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// No turn runs that could be steered; the message may be sent instead.
    #[error("no turn is running any more; send the message instead")]
    NotRunning,
    /// Too much waits already. Nothing was done.
    #[error("{what} is full{}; try again in {retry_after:?}", limit_text(*limit))]
    Overloaded {
        /// What is full.
        what: &'static str,
        /// How many it has room for, where that is a number which somebody has set.
        limit: Option<usize>,
        /// When it is worth another try.
        retry_after: Duration,
    },
    /// The tenant has as much as it may, or what is asked for does not fit. Nothing was done.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// What the tenant has on the disk is limited, and cannot be measured. Nothing was done.
    #[error(
        "the tenant `{tenant}` gets no more of the disk, since its data folder cannot be measured: {reason}"
    )]
    UsageUnknown {
        /// Whose.
        tenant: TenantId,
        /// What is in the way.
        reason: &'static str,
    },
    /// The runtime takes no new work.
    #[error("the runtime is being emptied and begins no turns")]
    Draining,
    /// The runtime has ended, or is about to.
    #[error("the runtime is shutting down")]
    ShuttingDown,
    /// The journal did not record it, or it is not known whether it did. The session is loaded anew before the next
    /// message.
    #[error("the journal did not record it: {reason}")]
    Journal {
        /// What it said.
        reason: String,
    },
    /// Another host writes the session now.
    #[error("the session was taken over: {reason}")]
    TakenOver {
        /// What the journal said.
        reason: String,
    },
    /// The session ended before it answered. Whether it was recorded is not known; its events say it.
    #[error("the session ended before it answered; what it recorded is in its events")]
    Lost,
    /// There was no answer in time. It may still happen.
    #[error("the session did not answer before the deadline")]
    DeadlinePassed,
    /// It could not be started.
    #[error("the session did not start: {reason}")]
    NotStarted {
        /// Why.
        reason: String,
    },
    /// It failed so often in a row that it is left alone. `Session::clear_quarantine` has it tried again.
    #[error(
        "the session is in quarantine after {failures} failures in a row, the last: {last}; mend the cause, then \
         lift the quarantine"
    )]
    Quarantined {
        /// How many.
        failures: u32,
        /// The last of them.
        last: String,
    },
    /// What is needed for it was not given.
    #[error("the session has {what}")]
    Unsupported {
        /// What is missing.
        what: &'static str,
    },
    /// The session cannot have this model, and keeps the one that it has.
    #[error("the session cannot use the model `{model}`: {reason}")]
    ModelRefused {
        /// The name that was asked for.
        model: String,
        /// Why.
        reason: String,
    },
    /// Its files could not be listed.
    #[error("the session's files cannot be listed: {reason}")]
    Files {
        /// Of which kind.
        kind: SandboxErrorKind,
        /// Why.
        reason: String,
    },
    /// A file that it produced is not to be had.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An artifact is not to be had, or not registered.
    #[error(transparent)]
    Artifact(#[from] SharedArtifactError),
}

impl SessionError {
    /// Whether nothing was done, so that the same message may be sent again a little later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Overloaded { .. } => true,
            Self::Quota(exceeded) => exceeded.is_retryable(),
            Self::Artifact(failure) => failure.error().is_retryable(),
            _ => false,
        }
    }

    /// When it is worth another try, where something was too full for this one.
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

    /// As many messages as may wait for their turn.
    pub(crate) const fn queue_full(limit: usize, retry_after: Duration) -> Self {
        Self::Overloaded {
            what: "the queue of messages that wait for their turn",
            limit: Some(limit),
            retry_after,
        }
    }

    pub(crate) fn from_start_error(error: &StartError) -> Self {
        match error {
            StartError::Full { .. } => Self::overloaded("the number of the tenant's sessions"),
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

impl From<CallError> for SessionError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Full => Self::overloaded("the session's queue of messages"),
            CallError::NotRunning | CallError::Lost => Self::Lost,
            CallError::DeadlinePassed => Self::DeadlinePassed,
        }
    }
}
