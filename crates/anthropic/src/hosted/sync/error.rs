//! Why a folder was not brought in step with the service, as a whole or in one of its skills.

use std::io;
use std::path::{Path, PathBuf};

use crate::hosted::{HostedError, SkillId};

/// A failure of [`SkillSync`](crate::hosted::SkillSync) that leaves nothing to do. What fails of a single skill is a
/// [`SkillFailure`], and the others go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The folder of skills is not there, or is no folder.
    #[error("{reason}")]
    Folder {
        /// Which, and what is wrong with it.
        reason: String,
    },
    /// The record of what was uploaded cannot be understood.
    #[error(
        "the record of uploaded skills `{}` cannot be used: {reason}; delete it, and the next push finds the skills at \
         the service by their titles",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The record of what was uploaded cannot be read or written.
    #[error("the record of uploaded skills `{}` cannot be kept: {source}", path.display())]
    Storage {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process changes what the service keeps, by the same record.
    #[error("another push is under way with `{}`; try again when it is done", path.display())]
    Busy {
        /// The file that it has locked.
        path: PathBuf,
    },
    /// The service, or the way to it, failed.
    #[error(transparent)]
    Service(#[from] HostedError),
}

/// The classes of [`SyncError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncErrorKind {
    /// The folder of skills.
    Folder,
    /// The record cannot be understood.
    Damaged,
    /// The record cannot be read or written.
    Storage,
    /// Somebody else is at it.
    Busy,
    /// The service.
    Service,
}

impl SyncError {
    /// Its class.
    #[must_use]
    pub const fn kind(&self) -> SyncErrorKind {
        match self {
            Self::Folder { .. } => SyncErrorKind::Folder,
            Self::Damaged { .. } => SyncErrorKind::Damaged,
            Self::Storage { .. } => SyncErrorKind::Storage,
            Self::Busy { .. } => SyncErrorKind::Busy,
            Self::Service(_) => SyncErrorKind::Service,
        }
    }

    /// Whether the same may well succeed later.
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

/// Why one skill of a folder is not in step with the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillFailure {
    /// It is not valid, cannot be read, or is above a limit. Nothing was sent.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// Several skills of the service have its name as their title, and none of them is remembered. Nothing was sent.
    #[error("the service has {} skills of this title ({}); delete all but one", skills.len(), listed(skills))]
    Ambiguous {
        /// Which.
        skills: Vec<SkillId>,
    },
    /// The service, or the way to it. Where it [may have happened](HostedError::may_have_happened), the next push looks before
    /// it sends anything.
    #[error(transparent)]
    Service(#[from] HostedError),
}

fn listed(skills: &[SkillId]) -> String {
    skills.iter().map(SkillId::as_str).collect::<Vec<_>>().join(", ")
}
