//! The errors of sandboxes.

use std::time::Duration;

use conjure_fs::BlockingError;

/// A failure of a sandbox or of an operation in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SandboxError {
    kind: SandboxErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SandboxErrorKind {
    /// The file, directory or program does not exist.
    NotFound,
    /// The system denies permission.
    PermissionDenied,
    /// The path lies outside the allowed directories, or leads out of them, or is read-only.
    PathNotAllowed,
    /// A directory instead of a file, a file instead of a directory, or a device.
    WrongFileType,
    /// Something with that name exists already.
    Exists,
    /// It is larger than the operation accepts.
    TooLarge,
    /// Not UTF-8 text where text is needed.
    NotText,
    /// The text to replace does not occur.
    NoMatch,
    /// The text to replace occurs more than once.
    NotUnique,
    /// The disk or quota is full.
    NoSpace,
    /// The program exists and cannot be executed.
    NotExecutable,
    /// No more processes, memory or files are available.
    Exhausted,
    /// No sandbox was admitted in time, because too many are live or requested. The call had no effect.
    /// [`SandboxError::retry_after`] tells when another attempt makes sense; if it returns `None`, no attempt does.
    Overloaded,
    /// It timed out.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// The request is invalid.
    BadRequest,
    /// The sandbox died or broke the protocol. What the call did is unknown. A new sandbox is needed.
    Lost,
    /// The sandbox could not be created.
    Unavailable,
    /// No container engine can be used.
    EngineUnavailable,
    /// The container engine does not have the image.
    ImageNotFound,
    /// The sandbox would not enforce a required boundary, so it was not created.
    NotEnforced,
    /// This executor does not support it.
    Unsupported,
    /// Anything else.
    Io,
}

/// The error for blocking work that ended without a result.
impl From<BlockingError> for SandboxError {
    fn from(error: BlockingError) -> Self {
        Self::new(SandboxErrorKind::Io, format!("a thread of the host ended early: {error}"))
    }
}

impl SandboxError {
    /// A failure of this class; `message` fits "failed to …: {message}".
    pub fn new(kind: SandboxErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// Sets when another attempt makes sense.
    #[must_use]
    pub const fn after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// The same failure with another message.
    #[must_use]
    pub fn with_message(&self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self.clone() }
    }

    /// The class.
    #[must_use]
    pub const fn kind(&self) -> SandboxErrorKind {
        self.kind
    }

    /// When another attempt makes sense, if known. There is no guarantee.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same call may succeed on a new sandbox, or later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self.kind {
            SandboxErrorKind::Lost
            | SandboxErrorKind::Exhausted
            | SandboxErrorKind::Unavailable
            | SandboxErrorKind::EngineUnavailable => true,
            SandboxErrorKind::Overloaded => self.retry_after.is_some(),
            _ => false,
        }
    }
}
