//! Errors of operations, as the guest sends them to the host.

use serde::{Deserialize, Serialize};

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct GuestError {
    /// The kind of failure.
    pub code: ErrorCode,
    /// What failed and on what, for people and models.
    pub message: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The file, directory or program is not there.
    NotFound,
    /// The system denies the permission.
    PermissionDenied,
    /// The path is outside the roots, leads out of them, or is in a read-only root.
    PathNotAllowed,
    /// A directory where a file is needed.
    IsDirectory,
    /// A file where a directory is needed.
    NotDirectory,
    /// A device, pipe or socket where a file is needed.
    NotRegular,
    /// The name exists already.
    Exists,
    /// It exceeds a limit of the operation.
    TooLarge,
    /// Not UTF-8 text where text is needed.
    NotText,
    /// `old` does not occur.
    NoMatch,
    /// `old` occurs more than once.
    NotUnique,
    /// The disk or quota is full.
    NoSpace,
    /// The file exists but cannot be executed.
    NotExecutable,
    /// Arguments and environment exceed the system's limit.
    ArgumentsTooLong,
    /// The system is out of processes, memory or files.
    Exhausted,
    /// The timeout has passed.
    TimedOut,
    /// The host cancelled it.
    Cancelled,
    /// The request is invalid.
    BadRequest,
    /// Another system error.
    Io,
}
