//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use rustix::io::Errno;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory cannot be used as a store.
    #[error("cannot use `{}` as a store: {reason}", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it, and how to mend it.
        reason: String,
    },
    /// The store does not have the content.
    #[error("{digest} is not in the store")]
    NotFound {
        /// Its digest.
        digest: Digest,
    },
    /// A stored content does not match its digest: it was changed on the disk.
    #[error(
        "the content that is stored as {digest} has the digest {actual}; remove it from the store and insert it again"
    )]
    Corrupt {
        /// The digest under which it is stored.
        digest: Digest,
        /// Its digest now.
        actual: Digest,
    },
    /// A file was changed while it was read. A retry may succeed.
    #[error("`{}` was changed while it was read; try again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The insertion was cancelled.
    #[error("the insertion of `{}` was cancelled", path.display())]
    Cancelled {
        /// The file.
        path: PathBuf,
    },
    /// A device, pipe, socket or directory was found where a regular file is needed.
    #[error("`{}` is not a regular file", path.display())]
    NotRegularFile {
        /// Its path.
        path: PathBuf,
    },
    /// A limit was exceeded.
    #[error("`{}` has more than {limit} {what}; raise the limit, or exclude some", path.display())]
    LimitExceeded {
        /// The file or directory.
        path: PathBuf,
        /// What was counted: bytes, entries, levels of directories.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The name is taken.
    #[error("`{}` already exists", path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// The disk or quota is full.
    #[error("cannot {operation} `{}`: the disk or quota is full; free some space on its file system", path.display())]
    NoSpace {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// The store is on a read-only file system.
    #[error("cannot {operation} `{}`: its file system is read-only; open a store elsewhere", path.display())]
    ReadOnly {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// Any other error of the system.
    #[error("cannot {operation} `{}`: {source}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The kinds of [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The directory cannot be used as a store.
    Unusable,
    /// A file, directory or content does not exist.
    NotFound,
    /// The system denied access.
    PermissionDenied,
    /// A content does not match its digest.
    Corrupt,
    /// The insertion was cancelled.
    Cancelled,
    /// A file was changed while it was read.
    Changed,
    /// A device, pipe, socket or directory was found where a regular file is needed.
    NotRegularFile,
    /// A limit was exceeded.
    LimitExceeded,
    /// The name is taken.
    Exists,
    /// The disk or quota is full.
    NoSpace,
    /// The store is on a read-only file system.
    ReadOnly,
    /// Any other error of the system.
    Io,
}

impl StoreError {
    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Unusable { .. } => StoreErrorKind::Unusable,
            Self::NotFound { .. } => StoreErrorKind::NotFound,
            Self::Corrupt { .. } => StoreErrorKind::Corrupt,
            Self::Cancelled { .. } => StoreErrorKind::Cancelled,
            Self::Changed { .. } => StoreErrorKind::Changed,
            Self::NotRegularFile { .. } => StoreErrorKind::NotRegularFile,
            Self::LimitExceeded { .. } => StoreErrorKind::LimitExceeded,
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

    /// Whether the same call is likely to succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }

    /// The error of an operation on `path` that failed with `errno`.
    pub(crate) fn from_errno(errno: Errno, operation: &'static str, path: &Path) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { operation, path },
            Errno::ROFS => Self::ReadOnly { operation, path },
            Errno::EXIST => Self::Exists { path },
            // The error of opening a socket, a device without a driver, or a directory for writing.
            Errno::NXIO | Errno::NODEV | Errno::ISDIR => Self::NotRegularFile { path },
            other => Self::Io { operation, path, source: other.into() },
        }
    }

    /// The error of an operation on `path` that failed with an error of the standard library.
    pub(crate) fn from_io(error: io::Error, operation: &'static str, path: &Path) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::from_errno(errno, operation, path),
            None => Self::Io { operation, path: path.to_owned(), source: error },
        }
    }
}
