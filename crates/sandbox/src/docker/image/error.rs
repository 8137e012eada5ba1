//! Why there is no image.

/// A failure to build an image; nothing of the build is left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageError {
    kind: ImageErrorKind,
    message: String,
    hint: Option<String>,
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageErrorKind {
    /// The request makes no sense.
    BadRequest,
    /// No engine answers, or not as one does.
    EngineUnavailable,
    /// The engine does not have the base, and no registry gives it.
    BaseNotFound,
    /// A program that does the work is not on this machine.
    MissingProgram,
    /// What must be fetched cannot be.
    Network,
    /// A disk is full: this machine's, or the engine's.
    NoSpace,
    /// The engine refuses, or a step of the Dockerfile failed.
    Refused,
    /// A program that does the work failed.
    Failed,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Anything else of this machine.
    Io,
}

impl ImageError {
    /// A failure of this class; `message` fits "failed to build the image: {message}".
    pub(super) fn new(kind: ImageErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// The same with what helps.
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What this machine could not do.
    pub(super) fn io(doing: &str, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ImageErrorKind::NoSpace,
            _ => ImageErrorKind::Io,
        };
        let told = Self::new(kind, format!("failed to {doing}: {error}"));
        if kind == ImageErrorKind::NoSpace { told.with_hint(ROOM_HERE) } else { told }
    }

    /// The class.
    #[must_use]
    pub const fn kind(&self) -> ImageErrorKind {
        self.kind
    }

    /// What helps, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the same build may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ImageErrorKind::Network | ImageErrorKind::EngineUnavailable | ImageErrorKind::TimedOut
        )
    }
}

/// For a full disk of this machine.
pub(super) const ROOM_HERE: &str =
    "make room in the folder for temporary files; TMPDIR names another one, which needs some 3 GB";

/// For a full disk of the engine's.
pub(super) const ROOM_THERE: &str =
    "make room where the engine keeps its data: `docker system df` tells what takes it";
