//! What SQLite and the store say, as what the journal's callers can act upon.

use std::io;
use std::path::Path;

use conjure_store::{StoreError, StoreErrorKind};
use rusqlite::ErrorCode;

use crate::error::{Found, JournalError, Place};

/// Why work within a transaction ended.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call is refused, and has changed nothing: the transaction goes on.
    Refused(JournalError),
    /// SQLite failed, and the call may have done a part: the transaction must be undone.
    Broken(rusqlite::Error),
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error)
    }
}

/// What SQLite's error means for the database at `path`.
pub(crate) fn of_sqlite(error: &rusqlite::Error, path: &Path) -> JournalError {
    let path = path.to_owned();
    let reason = error.to_string();
    let corrupt = |reason| JournalError::Corrupt { place: Place::File { path: path.clone() }, reason };
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => JournalError::Locked { path },
            // It has looked for the file's name, as we do.
            ErrorCode::ReadOnly if failure.extended_code == rusqlite::ffi::SQLITE_READONLY_DBMOVED => {
                JournalError::Displaced { path, found: Found::Nothing }
            }
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => JournalError::ReadOnly { path },
            ErrorCode::DiskFull => JournalError::DiskFull { path },
            ErrorCode::DatabaseCorrupt => corrupt(reason),
            ErrorCode::NotADatabase => JournalError::NotAJournal { path, reason },
            // A page that is not there, and the index of the log, which cannot be made larger on a full disk.
            ErrorCode::SystemIoFailure if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
                corrupt(reason)
            }
            ErrorCode::SystemIoFailure if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => {
                JournalError::DiskFull { path }
            }
            _ => JournalError::Io { doing: "use", path, reason },
        },
        // What the schema rules out is in there.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => corrupt(reason),
        _ => JournalError::Io { doing: "use", path, reason },
    }
}

/// What the store's error means.
pub(crate) fn of_store(error: &StoreError, path: &Path) -> JournalError {
    let path = path.to_owned();
    match (error, error.kind()) {
        (StoreError::Corrupt { digest, .. }, _) => {
            JournalError::Corrupt { place: Place::Blob { digest: *digest }, reason: error.to_string() }
        }
        (_, StoreErrorKind::NoSpace) => JournalError::DiskFull { path },
        (_, StoreErrorKind::ReadOnly | StoreErrorKind::PermissionDenied) => JournalError::ReadOnly { path },
        _ => JournalError::Io { doing: "use the large bodies in", path, reason: error.to_string() },
    }
}

/// What the system's error means when it was to do something with `path`.
pub(crate) fn of_io(error: &io::Error, doing: &'static str, path: &Path) -> JournalError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            JournalError::ReadOnly { path }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::DiskFull { path },
        _ => JournalError::Io { doing, path, reason: error.to_string() },
    }
}
