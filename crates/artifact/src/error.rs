//! The errors of artifacts (ADR-0018).
//!
//! Messages may be shown to the model: they name what the model or the user named, never a path of this machine. Details for the
//! embedder are in the source ([`std::error::Error::source`]) and in the log.

use std::fmt;
use std::io;
use std::time::Duration;

use conjure_conversation::{ArtifactName, ArtifactNameError};
use conjure_fs::BlockingError;
use conjure_store::{StoreError, StoreErrorKind};

/// Why an artifact was not registered, or a reference not resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The text is not a reference.
    #[error("invalid artifact URI `{uri}`: {reason}")]
    InvalidUri {
        /// The text, shortened.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The name is invalid.
    #[error(transparent)]
    InvalidName(#[from] ArtifactNameError),
    /// The session has no skill of this name.
    #[error("skill `{skill}` not found; the session's skills are: {known}")]
    SkillNotFound {
        /// The name.
        skill: String,
        /// The known names.
        known: String,
    },
    /// The skill has no such file.
    #[error("the skill `{skill}` has no file `{path}`")]
    AssetNotFound {
        /// The skill.
        skill: String,
        /// The path in it.
        path: String,
    },
    /// The session has no artifact of this name.
    #[error("artifact `{name}` not found; the session's artifacts are: {known}")]
    ArtifactNotFound {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The session has an artifact of this name already.
    #[error("the session has an artifact `{name}` already; unregister it first, or take another name")]
    Exists {
        /// The name.
        name: ArtifactName,
    },
    /// The file does not exist.
    #[error("the file of the artifact `{name}` was not found")]
    FileNotFound {
        /// The artifact.
        name: String,
    },
    /// It is a directory, a device, a pipe or another special file.
    #[error("the file of the artifact `{name}` is not a regular file")]
    NotAFile {
        /// The artifact.
        name: String,
    },
    /// The path leads out of its directory.
    #[error("path traversal blocked: `{path}` leads out of its directory")]
    PathTraversal {
        /// The path as it was named.
        path: String,
    },
    /// The file is in no allowed directory.
    #[error("the file of the artifact `{name}` is not beneath an allowed directory")]
    PathNotAllowed {
        /// The artifact.
        name: String,
    },
    /// The process may not read it.
    #[error("the file of the artifact `{name}` may not be read")]
    PermissionDenied {
        /// The artifact.
        name: String,
    },
    /// It is larger than allowed.
    #[error("{what} has more than {limit} bytes, which is the maximum")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The file changed while it was read.
    #[error("the file of the artifact `{name}` changed while it was read; register it when it is complete")]
    Changed {
        /// The artifact.
        name: String,
    },
    /// URLs of this scheme are not fetched.
    #[error("the scheme `{scheme}` is not allowed: {allowed}")]
    SchemeNotAllowed {
        /// The scheme.
        scheme: String,
        /// The allowed schemes.
        allowed: String,
    },
    /// The host is blocked.
    #[error("the host `{host}` is blocked")]
    HostBlocked {
        /// The host.
        host: String,
    },
    /// The host has a private address.
    #[error("the host `{host}` is at a private address, which is blocked")]
    PrivateAddress {
        /// The host.
        host: String,
    },
    /// Fetching URLs is disabled.
    #[error("URLs are not fetched here: the host has switched it off")]
    FetchDisabled,
    /// The fetch failed.
    #[error("fetching `{url}` failed: {reason}")]
    FetchFailed {
        /// The URL, redacted.
        url: String,
        /// The reason.
        reason: String,
        /// Whether a retry may help.
        retry: Retryable,
    },
    /// The model's service did not accept it.
    #[error("the artifact `{name}` could not be given to the model's service: {reason}")]
    UploadFailed {
        /// The artifact.
        name: ArtifactName,
        /// The reason.
        reason: String,
        /// Whether a retry may help.
        retry: Retryable,
    },
    /// It timed out.
    #[error("{what} took longer than {}", seconds(*waited))]
    TimedOut {
        /// What timed out.
        what: String,
        /// How long the caller waited.
        waited: Duration,
    },
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The code that handled it panicked: a bug in this library or in the embedder.
    #[error("the work was aborted: a part of the program panicked")]
    Panicked(#[source] PanicMessage),
    /// A tool's input could not be resolved.
    #[error("the input `{input}` could not be resolved: {reason}")]
    Resolution {
        /// The input's name.
        input: String,
        /// The reason.
        #[source]
        reason: Box<ArtifactError>,
    },
    /// The content could not be stored or read.
    #[error("the content of an artifact cannot be kept or read: {}", store_failure(.0))]
    Store(#[from] StoreError),
    /// The registration is invalid.
    #[error("the artifact `{name}` cannot be registered: {reason}")]
    InvalidRegistration {
        /// The artifact.
        name: ArtifactName,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// Reading it failed.
    #[error("`{what}` could not be read: {reason}")]
    Unreadable {
        /// What could not be read.
        what: String,
        /// The system's error.
        reason: String,
    },
    /// It is not supported here.
    #[error("{0}")]
    Unsupported(String),
}

/// Whether a retry may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retryable {
    /// A retry may help.
    Yes,
    /// A retry would fail in the same way.
    No,
}

/// The message of a panic. It is for the embedder only, because it may contain anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PanicMessage(String);

impl PanicMessage {
    pub(crate) fn new(said: impl Into<String>) -> Self {
        Self(said.into())
    }
}

impl From<BlockingError> for ArtifactError {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::Panicked(message) => Self::Panicked(PanicMessage::new(message)),
            BlockingError::Cancelled => Self::Cancelled,
        }
    }
}

/// The kinds of [`ArtifactError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the error of the same name")]
pub enum ArtifactErrorKind {
    InvalidUri,
    InvalidName,
    SkillNotFound,
    AssetNotFound,
    ArtifactNotFound,
    Exists,
    FileNotFound,
    NotAFile,
    PathTraversal,
    PathNotAllowed,
    PermissionDenied,
    TooLarge,
    Changed,
    SchemeNotAllowed,
    HostBlocked,
    PrivateAddress,
    FetchDisabled,
    FetchFailed,
    UploadFailed,
    TimedOut,
    Cancelled,
    Panicked,
    Store,
    InvalidRegistration,
    Unreadable,
    Unsupported,
}

impl ArtifactError {
    /// The kind of the error; for a failed resolution, the kind of its reason.
    #[must_use]
    pub fn kind(&self) -> ArtifactErrorKind {
        use ArtifactErrorKind as Kind;
        match self {
            Self::InvalidUri { .. } => Kind::InvalidUri,
            Self::InvalidName(_) => Kind::InvalidName,
            Self::SkillNotFound { .. } => Kind::SkillNotFound,
            Self::AssetNotFound { .. } => Kind::AssetNotFound,
            Self::ArtifactNotFound { .. } => Kind::ArtifactNotFound,
            Self::Exists { .. } => Kind::Exists,
            Self::FileNotFound { .. } => Kind::FileNotFound,
            Self::NotAFile { .. } => Kind::NotAFile,
            Self::PathTraversal { .. } => Kind::PathTraversal,
            Self::PathNotAllowed { .. } => Kind::PathNotAllowed,
            Self::PermissionDenied { .. } => Kind::PermissionDenied,
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Changed { .. } => Kind::Changed,
            Self::SchemeNotAllowed { .. } => Kind::SchemeNotAllowed,
            Self::HostBlocked { .. } => Kind::HostBlocked,
            Self::PrivateAddress { .. } => Kind::PrivateAddress,
            Self::FetchDisabled => Kind::FetchDisabled,
            Self::FetchFailed { .. } => Kind::FetchFailed,
            Self::UploadFailed { .. } => Kind::UploadFailed,
            Self::TimedOut { .. } => Kind::TimedOut,
            Self::Cancelled => Kind::Cancelled,
            Self::Panicked(_) => Kind::Panicked,
            Self::Resolution { reason, .. } => reason.kind(),
            Self::Store(_) => Kind::Store,
            Self::InvalidRegistration { .. } => Kind::InvalidRegistration,
            Self::Unreadable { .. } => Kind::Unreadable,
            Self::Unsupported(_) => Kind::Unsupported,
        }
    }

    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::FetchFailed { retry, .. } | Self::UploadFailed { retry, .. } => *retry == Retryable::Yes,
            Self::TimedOut { .. } | Self::Changed { .. } => true,
            Self::Resolution { reason, .. } => reason.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// The error for a scheme that is not allowed. `suffix` explains where the scheme comes from.
    pub(crate) fn scheme_not_allowed(scheme: &str, allowed: &[String], suffix: &str) -> Self {
        let names: Vec<String> = allowed.iter().map(|scheme| format!("`{scheme}`")).collect();
        let allowed = match &names[..] {
            [] => "none is".to_owned(),
            [only] => format!("only {only} is"),
            several => format!("{} are", several.join(" and ")),
        };
        Self::SchemeNotAllowed { scheme: scheme.to_owned(), allowed: format!("{allowed}{suffix}") }
    }

    /// The error for a failed read. The system's message contains no path.
    pub(crate) fn unread(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::Unreadable { what: what.to_string(), reason: error.to_string() }
    }

    /// Wraps the error as the reason why a tool input could not be resolved.
    #[must_use]
    pub fn for_input(self, input: impl Into<String>) -> Self {
        Self::Resolution { input: input.into(), reason: Box::new(self) }
    }
}

/// Describes a store error without its path.
fn store_failure(error: &StoreError) -> &'static str {
    match error.kind() {
        StoreErrorKind::NoSpace => "the disk is full",
        StoreErrorKind::ReadOnly => "the file system is read-only",
        StoreErrorKind::Corrupt => "the content does not match its digest",
        StoreErrorKind::NotFound => "it is not there any more",
        _ => "the store failed",
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// The longest excerpt in an error message, in characters.
pub(crate) const MAX_EXCERPT: usize = 200;

/// An excerpt of untrusted text for an error message: without user name, password, query and fragment.
pub(crate) fn safe_excerpt(text: &str) -> String {
    let text = text.find(['?', '#']).map_or(text, |end| &text[..end]);
    let (scheme, rest) = text.split_at(text.find("//").map_or(0, |at| at + 2));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, behind)| behind);
    let text: String = scheme.chars().chain(rest.chars()).take(MAX_EXCERPT + 1).collect();
    truncate(&text.escape_debug().to_string())
}

/// Shortens a text to [`MAX_EXCERPT`] characters.
pub(crate) fn truncate(text: &str) -> String {
    conjure_base::text::truncate(text, MAX_EXCERPT + 1).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_panic_is_an_error_that_hides_its_message() {
        let error = ArtifactError::from(BlockingError::Panicked("no /home/host/secret".to_owned()));
        assert_eq!((error.kind(), error.is_retryable()), (ArtifactErrorKind::Panicked, false));
        assert!(error.to_string().contains("panicked") && !error.to_string().contains("secret"), "{error}");
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no /home/host/secret");
        assert_eq!(ArtifactError::from(BlockingError::Cancelled).kind(), ArtifactErrorKind::Cancelled);
    }

    #[test]
    fn an_excerpt_hides_credentials_and_queries() {
        assert_eq!(safe_excerpt("https://user:pass@example.com/a?key=secret"), "https://example.com/a");
        assert_eq!(safe_excerpt("https://a@b@example.com\n"), "https://example.com\\n");
        assert_eq!(safe_excerpt("bob:hunter2@example.com"), "example.com");
        assert!(safe_excerpt(&"ä".repeat(5000)).chars().count() <= MAX_EXCERPT + 1);
    }

    proptest! {
        #[test]
        fn an_excerpt_is_short_and_has_no_query(text in ".{0,400}") {
            let shown = safe_excerpt(&text);
            prop_assert!(shown.chars().count() <= MAX_EXCERPT + 1);
            prop_assert!(!shown.contains('?') && !shown.contains('#'));
        }
    }
}
