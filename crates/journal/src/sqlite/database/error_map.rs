//! Maps errors of SQLite, the store and the system to journal errors.

use std::io;
use std::path::Path;

use conjure_store::{StoreError, StoreErrorKind};
use rusqlite::ErrorCode;

use crate::error::{DamagedPart, FoundInstead, JournalError};
use crate::record::RecordError;

/// Why a call in a transaction failed.
#[derive(Debug)]
pub(crate) enum TxError<E = JournalError> {
    /// The call was rejected and has changed nothing: the transaction continues.
    Rejected(E),
    /// The database failed, and the call may be half done: the transaction must be rolled back.
    Database(rusqlite::Error),
}

impl From<JournalError> for TxError {
    fn from(error: JournalError) -> Self {
        Self::Rejected(error)
    }
}

impl From<RecordError> for TxError<RecordError> {
    fn from(error: RecordError) -> Self {
        Self::Rejected(error)
    }
}

impl<E> From<rusqlite::Error> for TxError<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// Maps an SQLite error of the database at `path`.
pub(crate) fn map_sqlite_error(error: &rusqlite::Error, path: &Path) -> JournalError {
    let path = path.to_owned();
    let reason = error.to_string();
    let corrupt = |reason| JournalError::Corrupt { place: DamagedPart::File { path: path.clone() }, reason };
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => JournalError::Locked { path },
            // SQLite has checked the path too.
            ErrorCode::ReadOnly if failure.extended_code == rusqlite::ffi::SQLITE_READONLY_DBMOVED => {
                JournalError::DatabaseMoved { path, found: FoundInstead::Nothing }
            }
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => JournalError::ReadOnly { path },
            ErrorCode::DiskFull => JournalError::DiskFull { path },
            ErrorCode::DatabaseCorrupt => corrupt(reason),
            ErrorCode::NotADatabase => JournalError::NotAJournal { path, reason },
            // A missing page, or the WAL index, which cannot grow on a full disk.
            ErrorCode::SystemIoFailure if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
                corrupt(reason)
            }
            ErrorCode::SystemIoFailure if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => {
                JournalError::DiskFull { path }
            }
            _ => JournalError::Io { doing: "use", path, reason },
        },
        // The row has a value that the schema rules out.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => corrupt(reason),
        _ => JournalError::Io { doing: "use", path, reason },
    }
}

/// Maps an error of the store.
pub(crate) fn map_store_error(error: &StoreError, path: &Path) -> JournalError {
    let path = path.to_owned();
    match (error, error.kind()) {
        (StoreError::Corrupt { digest, .. }, _) => {
            JournalError::Corrupt { place: DamagedPart::Blob { digest: *digest }, reason: error.to_string() }
        }
        (_, StoreErrorKind::NoSpace) => JournalError::DiskFull { path },
        (_, StoreErrorKind::ReadOnly | StoreErrorKind::PermissionDenied) => JournalError::ReadOnly { path },
        _ => JournalError::Io { doing: "use the large bodies in", path, reason: error.to_string() },
    }
}

/// Maps a system error of an operation on `path`.
pub(crate) fn map_io_error(error: &io::Error, doing: &'static str, path: &Path) -> JournalError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            JournalError::ReadOnly { path }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::DiskFull { path },
        _ => JournalError::Io { doing, path, reason: error.to_string() },
    }
}
