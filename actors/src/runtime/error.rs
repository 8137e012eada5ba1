//! The errors of a runtime.

use conjure_base::SessionId;
use conjure_journal::JournalError;

use crate::session::SessionError;
use crate::supervision::{ShutdownError, SpecError, StartError};

/// A failure of the runtime. Failures of a session are in [`TreeError::Session`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The tree did not start.
    #[error("the runtime did not start: {0}")]
    NotStarted(#[source] StartError),
    /// The spec of the tree is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// The id in the request.
        session: SessionId,
    },
    /// The machine gave no entropy for a session's id.
    #[error("no id can be made for a session: {0}")]
    NoEntropy(#[source] std::io::Error),
    /// The journal failed.
    #[error("the journal failed: {0}")]
    Journal(#[source] JournalError),
    /// The journal was not open in time, or an event could not be encoded.
    #[error("the journal failed: {reason}")]
    JournalUnavailable {
        /// The reason.
        reason: String,
    },
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The tenant's supervisor did not start.
    #[error("the tenant's supervisor did not start: {0}")]
    Tenant(#[source] StartError),
    /// A session did not stop in time.
    #[error("the session {session} did not stop: {reason}")]
    NotStopped {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: String,
    },
    /// The runtime is draining and accepts no new sessions.
    #[error("the runtime is draining and opens no sessions")]
    Draining,
    /// The runtime did not stop in time and was killed.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
}
