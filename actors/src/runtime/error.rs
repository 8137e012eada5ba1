//! Why a runtime did not do what it was asked.

use conjure_base::SessionId;
use conjure_journal::JournalError;

use crate::session::SessionError;
use crate::supervision::{ShutdownError, SpecError, StartError};

/// A failure of the runtime itself; those of a session are in [`TreeError::Session`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The tree did not start.
    #[error("the runtime did not start: {0}")]
    NotStarted(#[source] StartError),
    /// The tree cannot be.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// What was asked for.
        session: SessionId,
    },
    /// The machine gives no entropy for a session's id.
    #[error("no id can be made for a session: {0}")]
    NoEntropy(#[source] std::io::Error),
    /// The journal did not do it.
    #[error("the journal failed: {0}")]
    Journal(#[source] JournalError),
    /// The journal was not open in time, or an event could not be written.
    #[error("the journal failed: {reason}")]
    JournalUnavailable {
        /// What is known.
        reason: String,
    },
    /// The session did not do it.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The tenant's supervisor did not start.
    #[error("the tenant's supervisor did not start: {0}")]
    Tenant(#[source] StartError),
    /// A session did not stop in time.
    #[error("the session {session} did not stop: {reason}")]
    NotStopped {
        /// Which.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// It takes no new sessions.
    #[error("the runtime is being emptied and opens no sessions")]
    Draining,
    /// It did not stop in time, and was ended.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
}
