//! Why a runtime did not do what it was asked.

use conjure_base::SessionId;

use crate::session::SessionError;
use crate::supervision::{ShutdownError, SpecError, StartError};

/// A failure of the runtime itself; those of a session are in [`RuntimeError::Session`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
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
    #[error("the journal failed: {reason}")]
    Journal {
        /// What it said.
        reason: String,
    },
    /// The session did not do it.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The tenant's supervisor did not start.
    #[error("the tenant's supervisor did not start: {0}")]
    Tenant(#[source] StartError),
    /// It takes no new sessions.
    #[error("the runtime is being emptied and opens no sessions")]
    Draining,
    /// It did not stop in time, and was ended.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
}
