//! A record, and the content that its writer sets.

use std::collections::BTreeMap;

use conjure_base::Timestamp;

use super::error::RecordError;
use super::key::{IndexName, RecordKey, is_text};

/// The longest unique name, in bytes.
pub const MAX_UNIQUE_NAME_BYTES: usize = 256;

/// The longest text in an index, in bytes.
pub const MAX_INDEX_TEXT_BYTES: usize = 512;

/// The maximum number of indexes of a record.
pub const MAX_INDEXES: usize = 16;

/// The largest body of a record, in bytes. Larger content belongs in a store, and its digest in the record.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// A value in an index. Numbers come before texts; texts are in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexValue {
    /// A number.
    Number(i64),
    /// A text of at most [`MAX_INDEX_TEXT_BYTES`] bytes without control characters. It may be empty.
    Text(String),
}

impl From<&str> for IndexValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for IndexValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for IndexValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Timestamp> for IndexValue {
    /// The time in milliseconds.
    fn from(time: Timestamp) -> Self {
        Self::Number(i64::try_from(time.millis()).unwrap_or(i64::MAX))
    }
}

/// The indexes of a record: at most [`MAX_INDEXES`], each with one value.
pub type Indexes = BTreeMap<IndexName, IndexValue>;

/// The content of a record, which its writer sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordContent {
    /// A name that no other record of the scope and kind has: 1 to [`MAX_UNIQUE_NAME_BYTES`] bytes, no control characters.
    pub unique_name: Option<String>,
    /// The indexed values, by which queries find it.
    pub indexes: Indexes,
    /// The body, at most [`MAX_RECORD_BYTES`]. Records do not interpret it.
    pub body: Vec<u8>,
}

impl RecordContent {
    /// A content with this body, without a name and indexes.
    #[must_use]
    pub fn new(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Sets the unique name.
    #[must_use]
    pub fn with_unique_name(mut self, name: impl Into<String>) -> Self {
        self.unique_name = Some(name.into());
        self
    }

    /// Sets the value of an index.
    #[must_use]
    pub fn with_index(mut self, name: IndexName, value: impl Into<IndexValue>) -> Self {
        self.indexes.insert(name, value.into());
        self
    }

    /// Checks the limits of all implementations.
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        let Self { unique_name, indexes, body } = self;
        if unique_name.as_ref().is_some_and(|name| !is_text(name, MAX_UNIQUE_NAME_BYTES)) {
            let rule = "it must have 1 to 256 bytes and no control characters";
            return Err(RecordError::Invalid { what: "the unique name of a record", rule });
        }
        if indexes.len() > MAX_INDEXES {
            return Err(RecordError::Invalid { what: "a record", rule: "it has at most 16 indexes" });
        }
        indexes.values().try_for_each(check_value)?;
        if body.len() > MAX_RECORD_BYTES {
            let size = body.len();
            return Err(RecordError::TooLarge {
                what: "the body of the record",
                size,
                limit: MAX_RECORD_BYTES,
            });
        }
        Ok(())
    }
}

/// Checks a value of an index, in a record or in a query.
pub(super) fn check_value(value: &IndexValue) -> Result<(), RecordError> {
    match value {
        IndexValue::Text(text) if !text.is_empty() && !is_text(text, MAX_INDEX_TEXT_BYTES) => {
            let rule = "it must have at most 512 bytes and no control characters";
            Err(RecordError::Invalid { what: "a text in an index", rule })
        }
        _ => Ok(()),
    }
}

/// A record to be inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// Its key.
    pub key: RecordKey,
    /// Its content.
    pub content: RecordContent,
}

impl NewRecord {
    /// A record with this key and content.
    #[must_use]
    pub const fn new(key: RecordKey, content: RecordContent) -> Self {
        Self { key, content }
    }
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: RecordKey,
    /// The number of times that it was written, from 1. A writer names the version that it has read.
    pub version: u64,
    /// Its content.
    pub content: RecordContent,
    /// When it was inserted, by the clock of the database.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// The number of its insertion, which orders records of the same time. No other record of the database has it.
    pub number: u64,
}

impl Record {
    /// The value of an index.
    #[must_use]
    pub fn index(&self, name: &IndexName) -> Option<&IndexValue> {
        self.content.indexes.get(name)
    }
}
