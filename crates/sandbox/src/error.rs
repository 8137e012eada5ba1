//! Why something in a sandbox failed.

use std::time::Duration;

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
    /// The file, folder or program is not there.
    NotFound,
    /// The system refuses.
    PermissionDenied,
    /// The path lies outside what the sandbox allows, or leads out of it, or is read-only.
    PathNotAllowed,
    /// A folder where a file is needed, the other way round, or a device.
    WrongFileType,
    /// Something of that name is there already.
    Exists,
    /// More than the operation takes.
    TooLarge,
    /// Not UTF-8 text where text is needed.
    NotText,
    /// The text to replace does not occur.
    NoMatch,
    /// The text to replace occurs more than once.
    NotUnique,
    /// The disk or quota is full.
    NoSpace,
    /// The program is there but cannot be run.
    NotExecutable,
    /// No more processes, memory or files can be had.
    Exhausted,
    /// So many sandboxes are live, or asked for, that there was none in time. Nothing was done. When it is worth another try says
    /// [`SandboxError::retry_after`]; where that says nothing, it is none.
    Overloaded,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// The request makes no sense.
    BadRequest,
    /// The sandbox died, or broke the protocol; what the call did is unknown. A new sandbox is needed.
    Lost,
    /// The sandbox could not be made.
    Unavailable,
    /// There is no container engine that can be used.
    EngineUnavailable,
    /// The container engine does not have the image.
    ImageNotFound,
    /// The sandbox would not enforce what is demanded of it, so it was not made.
    NotEnforced,
    /// This executor does not do that.
    Unsupported,
    /// Anything else.
    Io,
}

impl SandboxError {
    /// A failure of this class; `message` fits "failed to …: {message}".
    pub fn new(kind: SandboxErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// The same, which is worth another try after this time.
    #[must_use]
    pub const fn after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// The same failure, in these words.
    #[must_use]
    pub fn with_message(&self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self.clone() }
    }

    /// The class.
    #[must_use]
    pub const fn kind(&self) -> SandboxErrorKind {
        self.kind
    }

    /// When it may be worth to do the same again, where whoever refused it knows: an advice, no promise.
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
