//! The errors of image builds.

/// A failure to build an image. Nothing of the build remains.
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
    /// The request is invalid.
    BadRequest,
    /// No engine answers, or the response is not from an engine.
    EngineUnavailable,
    /// The engine does not have the base image, and cannot pull it.
    BaseNotFound,
    /// A needed program is not installed on this machine.
    MissingProgram,
    /// Something could not be downloaded.
    Network,
    /// A disk is full: this machine's, or the engine's.
    NoSpace,
    /// The engine refused, or a step of the Dockerfile failed.
    Refused,
    /// A program of the build failed.
    Failed,
    /// It timed out.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Another failure of this machine.
    Io,
}

impl ImageError {
    /// A failure of this class; `message` fits "failed to build the image: {message}".
    pub(super) fn new(kind: ImageErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Adds a hint.
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error for a failed operation of this machine.
    pub(super) fn io(doing: &str, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ImageErrorKind::NoSpace,
            _ => ImageErrorKind::Io,
        };
        let image_error = Self::new(kind, format!("failed to {doing}: {error}"));
        if kind == ImageErrorKind::NoSpace { image_error.with_hint(ROOM_HERE) } else { image_error }
    }

    /// The class.
    #[must_use]
    pub const fn kind(&self) -> ImageErrorKind {
        self.kind
    }

    /// A hint how to fix it, if known.
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

/// The hint for a full disk of this machine.
pub(super) const ROOM_HERE: &str =
    "make room in the directory for temporary files; TMPDIR names another one, which needs some 3 GB";

/// The hint for a full disk of the engine.
pub(super) const ROOM_THERE: &str =
    "make room where the engine keeps its data: `docker system df` tells what takes it";
