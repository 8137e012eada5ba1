//! How an actor ended. Supervisors decide by the class; the cause is for humans.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::id::ChildId;

/// The error that a worker returns when it cannot continue. The worker then ends with [`Exit::Failed`].
pub type Failure = Box<dyn Error + Send + Sync + 'static>;

/// The error with which a worker failed. The supervisor, its monitors and the tree share it.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps a worker's error.
    #[must_use]
    pub fn new(failure: Failure) -> Self {
        Self(Arc::from(failure))
    }

    /// The error itself, for its sources or for downcasting.
    #[must_use]
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.0.as_ref()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How an actor ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Exit {
    /// It stopped by itself.
    Normal,
    /// Its supervisor stopped it, or it is a supervisor that gave up.
    Shutdown,
    /// It was killed: by a caller, by its supervisor, or because it did not stop in time.
    Killed,
    /// It returned an error.
    Failed(Cause),
    /// It panicked, with this text.
    Panicked(Arc<str>),
    /// It failed during its start.
    StartFailed(StartFailure),
}

/// Why a start failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartFailure {
    /// The start returned an error.
    #[error("{0}")]
    Failed(Cause),
    /// The start panicked, with this text.
    #[error("it panicked: {0}")]
    Panicked(Arc<str>),
    /// The start took longer than this.
    #[error("it took longer than {0:?}")]
    TooSlow(Duration),
    /// The actor is a supervisor, and this child did not start.
    #[error("its child `{0}` did not start ({1})")]
    Child(ChildId, Arc<Exit>),
}

/// The class of an [`Exit`]. Supervisors decide restarts by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitClass {
    /// [`Exit::Normal`].
    Normal,
    /// [`Exit::Shutdown`].
    Shutdown,
    /// [`Exit::Killed`].
    Killed,
    /// [`Exit::Failed`].
    Failed,
    /// [`Exit::Panicked`].
    Panicked,
    /// [`Exit::StartFailed`].
    StartFailed,
}

impl Exit {
    /// The class of this exit.
    #[must_use]
    pub const fn class(&self) -> ExitClass {
        match self {
            Self::Normal => ExitClass::Normal,
            Self::Shutdown => ExitClass::Shutdown,
            Self::Killed => ExitClass::Killed,
            Self::Failed(_) => ExitClass::Failed,
            Self::Panicked(_) => ExitClass::Panicked,
            Self::StartFailed(_) => ExitClass::StartFailed,
        }
    }
}

impl ExitClass {
    /// Whether a transient child with this exit is restarted. A kill counts as abnormal. The state machine handles
    /// requested stops before it asks this.
    #[must_use]
    pub const fn is_abnormal(self) -> bool {
        !matches!(self, Self::Normal | Self::Shutdown)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("normal"),
            Self::Shutdown => f.write_str("shutdown"),
            Self::Killed => f.write_str("killed"),
            Self::Failed(cause) => write!(f, "failed: {cause}"),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::StartFailed(failure) => write!(f, "failed to start: {failure}"),
        }
    }
}

/// The text of a panic, if it has one.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> Arc<str> {
    if let Some(text) = payload.downcast_ref::<&str>() {
        Arc::from(*text)
    } else if let Some(text) = payload.downcast_ref::<String>() {
        Arc::from(text.as_str())
    } else {
        Arc::from("a panic without a text")
    }
}
