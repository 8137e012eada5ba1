//! Why an artifact is not to be had (the errors of ADR-0018).
//!
//! A message is fit for the model: it names what the model or the user named, never a path of the host's. What a host needs besides
//! is in the source ([`std::error::Error::source`]) and in the log.

use std::fmt;
use std::io;
use std::time::Duration;

use conjure_conversation::{ArtifactName, ArtifactNameError};
use conjure_store::{StoreError, StoreErrorKind};

/// Why an artifact was not registered, or a reference not resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The text is no reference.
    #[error("invalid artifact URI `{uri}`: {reason}")]
    InvalidUri {
        /// The text, shortened.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The name is none.
    #[error(transparent)]
    InvalidName(#[from] ArtifactNameError),
    /// The session has no skill of this name.
    #[error("skill `{skill}` not found; the session's skills are: {known}")]
    SkillNotFound {
        /// The name.
        skill: String,
        /// The names that there are.
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
        /// The names that there are.
        known: String,
    },
    /// The session has an artifact of this name already.
    #[error("the session has an artifact `{name}` already; unregister it first, or take another name")]
    Exists {
        /// The name.
        name: ArtifactName,
    },
    /// There is no such file.
    #[error("the file of the artifact `{name}` was not found")]
    FileNotFound {
        /// The artifact.
        name: String,
    },
    /// It is a folder, a device, a pipe or something else that is no plain file.
    #[error("the file of the artifact `{name}` is not a plain file")]
    NotAFile {
        /// The artifact.
        name: String,
    },
    /// The path leads out of where it must stay.
    #[error("path traversal blocked: `{path}` leads out of its folder")]
    PathTraversal {
        /// The path as it was named.
        path: String,
    },
    /// The host allows no files from there.
    #[error("the file of the artifact `{name}` does not lie beneath a folder that is allowed")]
    PathNotAllowed {
        /// The artifact.
        name: String,
    },
    /// It may not be read.
    #[error("the file of the artifact `{name}` may not be read")]
    PermissionDenied {
        /// The artifact.
        name: String,
    },
    /// It has more bytes than allowed.
    #[error("{what} has more than {limit} bytes, the most that is allowed")]
    TooLarge {
        /// What.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The file changed while it was read.
    #[error("the file of the artifact `{name}` changed while it was read; register it when it is whole")]
    Changed {
        /// The artifact.
        name: String,
    },
    /// The scheme may not be fetched.
    #[error("the scheme `{scheme}` is not allowed: {allowed}")]
    SchemeNotAllowed {
        /// The scheme.
        scheme: String,
        /// What is allowed.
        allowed: String,
    },
    /// The host may not be asked.
    #[error("the host `{host}` is blocked")]
    HostBlocked {
        /// The host.
        host: String,
    },
    /// The address is not a public one.
    #[error("the host `{host}` is at a private address, which is blocked")]
    PrivateAddress {
        /// The host.
        host: String,
    },
    /// URLs are not fetched here.
    #[error("URLs are not fetched here: the host has switched it off")]
    FetchDisabled,
    /// The fetch failed.
    #[error("fetching `{url}` failed: {reason}")]
    FetchFailed {
        /// The URL, without what may be secret in it.
        url: String,
        /// Why.
        reason: String,
        /// Whether trying again may help.
        retry: Retry,
    },
    /// The model's service did not take it.
    #[error("the artifact `{name}` could not be given to the model's service: {reason}")]
    UploadFailed {
        /// Which.
        name: ArtifactName,
        /// Why.
        reason: String,
        /// Whether trying again may help.
        retry: Retry,
    },
    /// It took too long.
    #[error("{what} took longer than {}", seconds(*waited))]
    TimedOut {
        /// What.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// It was called off.
    #[error("cancelled")]
    Cancelled,
    /// A part of the program panicked over it: an error of this library's, or of the host's.
    #[error("the work broke off: a part of the program panicked")]
    Panicked(#[source] PanicMessage),
    /// A tool's input could not be resolved.
    #[error("the input `{input}` could not be resolved: {reason}")]
    Resolution {
        /// The input's name.
        input: String,
        /// Why.
        #[source]
        reason: Box<ArtifactError>,
    },
    /// The content could not be stored or read.
    #[error("the content of an artifact cannot be kept or read: {}", what_failed(.0))]
    Store(#[from] StoreError),
    /// The registration says what cannot be.
    #[error("the artifact `{name}` cannot be registered: {reason}")]
    InvalidRegistration {
        /// The artifact.
        name: ArtifactName,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// It is there and may be read, and cannot be.
    #[error("`{what}` could not be read: {reason}")]
    Unreadable {
        /// What.
        what: String,
        /// What the system said.
        reason: String,
    },
    /// It cannot be had here.
    #[error("{0}")]
    Unsupported(String),
}

/// Whether trying again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It may.
    MayHelp,
    /// The same will come of it.
    Useless,
}

/// What a panic said: for the host alone, since it may name anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PanicMessage(String);

impl PanicMessage {
    pub(crate) fn new(said: impl Into<String>) -> Self {
        Self(said.into())
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
    /// What kind of error it is; of a failed resolution, the kind of its reason.
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

    /// Whether the same may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::FetchFailed { retry, .. } | Self::UploadFailed { retry, .. } => *retry == Retry::MayHelp,
            Self::TimedOut { .. } | Self::Changed { .. } => true,
            Self::Resolution { reason, .. } => reason.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// This scheme is none of those that are allowed; `why` it is asked for at all, if that does not show.
    pub(crate) fn scheme_not_allowed(scheme: &str, allowed: &[String], why: &str) -> Self {
        let names: Vec<String> = allowed.iter().map(|scheme| format!("`{scheme}`")).collect();
        let allowed = match &names[..] {
            [] => "none is".to_owned(),
            [only] => format!("only {only} is"),
            several => format!("{} are", several.join(" and ")),
        };
        Self::SchemeNotAllowed { scheme: scheme.to_owned(), allowed: format!("{allowed}{why}") }
    }

    /// What the system said when this was read. Its words name no path.
    pub(crate) fn unread(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::Unreadable { what: what.to_string(), reason: error.to_string() }
    }

    /// The same as the reason why this input could not be resolved.
    #[must_use]
    pub fn of_input(self, input: impl Into<String>) -> Self {
        Self::Resolution { input: input.into(), reason: Box::new(self) }
    }
}

/// Without the path, which is the host's.
fn what_failed(error: &StoreError) -> &'static str {
    if matches!(error, StoreError::Thawed { .. }) {
        return "its file was to stay as it was, and was changed; register it again";
    }
    match error.kind() {
        StoreErrorKind::NoSpace => "the disk is full",
        StoreErrorKind::ReadOnly => "the file system is read-only",
        StoreErrorKind::Corrupt => "what is there is not what its digest says",
        StoreErrorKind::NotFound => "it is not there any more",
        _ => "the store failed",
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
