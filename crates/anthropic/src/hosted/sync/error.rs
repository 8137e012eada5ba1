//! The errors of a push, and of one skill in a push.

use std::io;
use std::path::{Path, PathBuf};

use crate::hosted::{HostedError, SkillId};

/// A failure of [`SkillSync`](crate::hosted::SkillSync) as a whole. A [`SkillFailure`] is the failure of one skill; the push continues with
/// the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The directory of skills does not exist, or is not a directory.
    #[error("{reason}")]
    Dir {
        /// Which directory, and what is wrong.
        reason: String,
    },
    /// The index of uploaded skills is damaged.
    #[error(
        "the record of uploaded skills `{}` cannot be used: {reason}; delete it, and the next push finds the skills at \
         the service by their titles",
        path.display()
    )]
    Damaged {
        /// The file of the index.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The index of uploaded skills cannot be read or written.
    #[error("the record of uploaded skills `{}` cannot be kept: {source}", path.display())]
    Storage {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process is changing the index.
    #[error("another push is under way with `{}`; try again when it is done", path.display())]
    Busy {
        /// The locked file.
        path: PathBuf,
    },
    /// The service or the connection failed.
    #[error(transparent)]
    Service(#[from] HostedError),
}

/// The kinds of [`SyncError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncErrorKind {
    /// The directory of skills is invalid.
    Dir,
    /// The index is damaged.
    Damaged,
    /// The index cannot be read or written.
    Storage,
    /// Another process is changing the index.
    Busy,
    /// The service or the connection failed.
    Service,
}

impl SyncError {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> SyncErrorKind {
        match self {
            Self::Dir { .. } => SyncErrorKind::Dir,
            Self::Damaged { .. } => SyncErrorKind::Damaged,
            Self::Storage { .. } => SyncErrorKind::Storage,
            Self::Busy { .. } => SyncErrorKind::Busy,
            Self::Service(_) => SyncErrorKind::Service,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy { .. } => true,
            Self::Service(error) => error.is_retryable(),
            _ => false,
        }
    }

    pub(super) fn storage(path: &Path, source: io::Error) -> Self {
        Self::Storage { path: path.to_owned(), source }
    }
}

/// Why one skill of a directory was not pushed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillFailure {
    /// The skill is invalid, cannot be read, or exceeds a limit. Nothing was sent.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The index has no entry for the skill, and several skills of the service have its name as their title. Nothing was sent.
    #[error("the service has {} skills of this title ({}); delete all but one", skills.len(), listed(skills))]
    Ambiguous {
        /// The skills with this title.
        skills: Vec<SkillId>,
    },
    /// The service or the connection failed. If the request [may have happened](HostedError::may_have_happened), the
    /// next push checks before it sends anything.
    #[error(transparent)]
    Service(#[from] HostedError),
}

fn listed(skills: &[SkillId]) -> String {
    skills.iter().map(SkillId::as_str).collect::<Vec<_>>().join(", ")
}
