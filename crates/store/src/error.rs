//! Why something in the store failed.

use std::io;
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use rustix::io::Errno;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder cannot be a store.
    #[error("cannot use `{}` as a store: {reason}", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it, and how to mend it.
        reason: String,
    },
    /// There is no such content.
    #[error("{digest} is not in the store")]
    Absent {
        /// What was asked for.
        digest: Digest,
    },
    /// What is stored under a digest has another one: something changed it on the disk.
    #[error("what is stored as {digest} is {actual}; remove it from the store and insert it again")]
    Corrupt {
        /// What it should be.
        digest: Digest,
        /// What it is.
        actual: Digest,
    },
    /// A file was changed while it was read. It can be tried again.
    #[error("`{}` was changed while it was read; try again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// What is stored under a digest is a link to a file that was to stay as it was, and was changed.
    #[error("what is stored as {digest} was a link to a file that has been changed since; insert it again")]
    Thawed {
        /// What it should be.
        digest: Digest,
    },
    /// It was called off.
    #[error("the insertion of `{}` was called off", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
    /// A device, pipe, socket or folder where a file is needed.
    #[error("`{}` is not a plain file", path.display())]
    NotPlain {
        /// What it is called.
        path: PathBuf,
    },
    /// More than was allowed.
    #[error("`{}` has more than {limit} {what}; raise the limit, or leave some out", path.display())]
    TooMuch {
        /// The file or folder.
        path: PathBuf,
        /// What was counted: bytes, entries, levels of folders.
        what: &'static str,
        /// The most that was allowed.
        limit: u64,
    },
    /// Something of that name is there already.
    #[error("`{}` is there already", path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// The disk or quota is full.
    #[error("cannot {doing} `{}`: the disk or quota is full; make room on its file system", path.display())]
    NoSpace {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// The store lies on a file system that cannot be written.
    #[error("cannot {doing} `{}`: its file system is read-only; open a store elsewhere", path.display())]
    ReadOnly {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// Anything else that the system said.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The folder cannot be a store.
    Unusable,
    /// A file, folder or content is not there.
    NotFound,
    /// The system refuses.
    PermissionDenied,
    /// Content is not what its digest says, or not any more.
    Corrupt,
    /// It was called off.
    Stopped,
    /// A file was changed while it was read.
    Changed,
    /// A device, pipe, socket or folder where a file is needed.
    NotPlain,
    /// More than was allowed.
    TooMuch,
    /// Something of that name is there already.
    Exists,
    /// The disk or quota is full.
    NoSpace,
    /// The store cannot be written.
    ReadOnly,
    /// Anything else.
    Io,
}

impl StoreError {
    /// The class.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Unusable { .. } => StoreErrorKind::Unusable,
            Self::Absent { .. } => StoreErrorKind::NotFound,
            Self::Corrupt { .. } | Self::Thawed { .. } => StoreErrorKind::Corrupt,
            Self::Stopped { .. } => StoreErrorKind::Stopped,
            Self::Changed { .. } => StoreErrorKind::Changed,
            Self::NotPlain { .. } => StoreErrorKind::NotPlain,
            Self::TooMuch { .. } => StoreErrorKind::TooMuch,
            Self::Exists { .. } => StoreErrorKind::Exists,
            Self::NoSpace { .. } => StoreErrorKind::NoSpace,
            Self::ReadOnly { .. } => StoreErrorKind::ReadOnly,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => StoreErrorKind::NotFound,
                io::ErrorKind::PermissionDenied => StoreErrorKind::PermissionDenied,
                _ => StoreErrorKind::Io,
            },
        }
    }

    /// Whether the same call may well succeed later, with nothing changed by the caller.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }

    /// What the system said when it was to do something with `path`.
    pub(crate) fn of(errno: Errno, doing: &'static str, path: &Path) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { doing, path },
            Errno::ROFS => Self::ReadOnly { doing, path },
            Errno::EXIST => Self::Exists { path },
            // What opening a socket, a device without a driver or a folder for writing gives.
            Errno::NXIO | Errno::NODEV | Errno::ISDIR => Self::NotPlain { path },
            other => Self::Io { doing, path, source: other.into() },
        }
    }

    /// The same for an error of the standard library.
    pub(crate) fn of_io(error: io::Error, doing: &'static str, path: &Path) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::of(errno, doing, path),
            None => Self::Io { doing, path: path.to_owned(), source: error },
        }
    }
}
