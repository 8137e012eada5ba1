//! Several writes that happen together or not at all.

use super::error::RecordError;
use super::key::{RecordKey, RecordScope};
use super::row::{NewRecord, RecordContent};

/// The maximum number of writes of one transaction.
pub const MAX_WRITES: usize = 256;

/// A write of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordWrite {
    /// Inserts a record.
    Insert(NewRecord),
    /// Replaces the content of a record, if it has this version.
    Replace {
        /// Which record.
        key: RecordKey,
        /// The version that was read.
        expected_version: u64,
        /// The new content. Nothing of the old content stays.
        content: RecordContent,
    },
    /// Deletes a record, if there is one.
    Delete {
        /// Which record.
        key: RecordKey,
        /// The version that it must have if it is there; `None`: any.
        expected_version: Option<u64>,
    },
}

impl RecordWrite {
    /// The record that it writes.
    #[must_use]
    pub const fn key(&self) -> &RecordKey {
        match self {
            Self::Insert(NewRecord { key, .. }) | Self::Replace { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// The content that it writes; `None` for a deletion.
    #[must_use]
    pub const fn content(&self) -> Option<&RecordContent> {
        match self {
            Self::Insert(NewRecord { content, .. }) | Self::Replace { content, .. } => Some(content),
            Self::Delete { .. } => None,
        }
    }
}

/// Checks the limits of all implementations. Returns the scope of the writes; `None` without writes.
pub(crate) fn check_writes(writes: &[RecordWrite]) -> Result<Option<RecordScope>, RecordError> {
    if writes.len() > MAX_WRITES {
        return Err(RecordError::Invalid { what: "a transaction", rule: "it has at most 256 writes" });
    }
    let Some(first) = writes.first() else { return Ok(None) };
    let scope = first.key().scope();
    if writes.iter().any(|write| write.key().scope() != scope) {
        return Err(RecordError::Invalid { what: "a transaction", rule: "all its records have one scope" });
    }
    writes.iter().filter_map(RecordWrite::content).try_for_each(RecordContent::check)?;
    Ok(Some(scope.clone()))
}
