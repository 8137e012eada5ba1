//! The errors of records.

use std::time::Duration;

use super::key::{RecordKey, RecordKind, RecordNameError, RecordScope};
use crate::error::{JournalError, JournalErrorKind};

/// A failure of records. Unless the variant states otherwise, nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no such record.
    #[error("there is no record {key}")]
    NotFound {
        /// The requested record.
        key: RecordKey,
    },
    /// There is a record with this key already.
    #[error("the record {key} exists already")]
    Exists {
        /// The key.
        key: RecordKey,
    },
    /// Another record of the same scope and kind has the unique name.
    #[error("another record of the kind `{kind}` has the name `{name}`; choose another name")]
    NameTaken {
        /// The scope.
        scope: RecordScope,
        /// The kind.
        kind: RecordKind,
        /// The name.
        name: String,
    },
    /// The record was written since it was read.
    #[error("the record {key} has the version {current}, but {expected} was expected; read it again")]
    VersionConflict {
        /// The key.
        key: RecordKey,
        /// The caller's version.
        expected: u64,
        /// The version in the database.
        current: u64,
    },
    /// The cursor is not one of this query: it has another scope, kind, filter or order, or it is no cursor.
    #[error("the cursor does not belong to this query; begin again without a cursor")]
    WrongCursor,
    /// A value is larger than its limit.
    #[error("{what} has {size} bytes, more than {limit}")]
    TooLarge {
        /// Which value.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A value is not valid.
    #[error("{what} is not valid: {rule}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// The rule.
        rule: &'static str,
    },
    /// A stored record is damaged. Others may be intact.
    #[error("the record {key} is damaged: {reason}")]
    Corrupt {
        /// The key.
        key: RecordKey,
        /// What is wrong.
        reason: String,
    },
    /// The database is being reopened, and was not open in time. The call was not carried out.
    #[error("the database of the records cannot be used: {reason}; try again later")]
    Unavailable {
        /// The reason.
        reason: String,
    },
    /// The database failed or is overloaded. The variant of [`JournalError`] says whether the call was carried out.
    #[error(transparent)]
    Storage(#[from] JournalError),
}

impl From<RecordNameError> for RecordError {
    fn from(RecordNameError { what, rule }: RecordNameError) -> Self {
        Self::Invalid { what, rule }
    }
}

/// The classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordErrorKind {
    /// There is no such record.
    NotFound,
    /// The record exists already.
    Exists,
    /// Another record has the name.
    NameTaken,
    /// The version is not the expected one.
    VersionConflict,
    /// The cursor is of another query.
    WrongCursor,
    /// A value is too large or not valid.
    Invalid,
    /// The record is damaged.
    Corrupt,
    /// The database is not open.
    Unavailable,
    /// The database failed.
    Storage(JournalErrorKind),
}

impl RecordError {
    /// The class.
    #[must_use]
    pub const fn kind(&self) -> RecordErrorKind {
        match self {
            Self::NotFound { .. } => RecordErrorKind::NotFound,
            Self::Exists { .. } => RecordErrorKind::Exists,
            Self::NameTaken { .. } => RecordErrorKind::NameTaken,
            Self::VersionConflict { .. } => RecordErrorKind::VersionConflict,
            Self::WrongCursor => RecordErrorKind::WrongCursor,
            Self::TooLarge { .. } | Self::Invalid { .. } => RecordErrorKind::Invalid,
            Self::Corrupt { .. } => RecordErrorKind::Corrupt,
            Self::Unavailable { .. } => RecordErrorKind::Unavailable,
            Self::Storage(error) => RecordErrorKind::Storage(error.kind()),
        }
    }

    /// The wait before a retry of an overloaded call.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Storage(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Storage(error) => error.is_retryable(),
            _ => false,
        }
    }
}
