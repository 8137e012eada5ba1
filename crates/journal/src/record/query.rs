//! Queries: the records of one kind, by indexes and in an order, page by page.

use std::ops::Bound;

use conjure_base::{DigestHasher, Timestamp};

use super::cursor::{RecordCursor, value_text};
use super::error::RecordError;
use super::key::{IndexName, RecordKind, RecordScope};
use super::row::{IndexValue, MAX_INDEXES, Record, check_value};

/// The direction of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The least first.
    Ascending,
    /// The greatest first: by time, the newest.
    #[default]
    Descending,
}

/// The order of a list, and its bounds. Records with the same value are in the order of their insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOrder {
    /// By the time of their insertion.
    CreatedAt {
        /// The first time.
        from: Bound<Timestamp>,
        /// The last time.
        to: Bound<Timestamp>,
    },
    /// By an index. Records without a value there are not listed.
    Index {
        /// The index.
        name: IndexName,
        /// The least value.
        from: Bound<IndexValue>,
        /// The greatest value.
        to: Bound<IndexValue>,
    },
}

impl RecordOrder {
    /// By the time of their insertion, without bounds.
    pub const CREATED_AT: Self = Self::CreatedAt { from: Bound::Unbounded, to: Bound::Unbounded };

    /// By an index, without bounds.
    #[must_use]
    pub const fn index(name: IndexName) -> Self {
        Self::Index { name, from: Bound::Unbounded, to: Bound::Unbounded }
    }
}

/// A query of the records of one kind.
///
/// The cost of a page is in proportion to the records that it returns, in these cases:
///
/// - no filter;
/// - one filter, and the order by time.
///
/// Otherwise the database reads along the index of the order, or along the first filter when the order is by time. It skips the
/// records that the other filters exclude. So put the filter that matches the fewest records first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordQuery {
    /// The scope of the records.
    pub scope: RecordScope,
    /// The kind of the records.
    pub kind: RecordKind,
    /// The values that indexes must have, all of them.
    pub filters: Vec<(IndexName, IndexValue)>,
    /// The order, with its bounds.
    pub order: RecordOrder,
    /// Its direction.
    pub direction: Direction,
    /// Where the page begins; `None`: at the first record.
    pub after: Option<RecordCursor>,
    /// The maximum number of records of the page, 1 to 1,000.
    pub limit: u32,
}

impl RecordQuery {
    /// All records of the kind, the newest first, 100 a page.
    #[must_use]
    pub fn new(scope: impl Into<RecordScope>, kind: RecordKind) -> Self {
        Self {
            scope: scope.into(),
            kind,
            filters: Vec::new(),
            order: RecordOrder::CREATED_AT,
            direction: Direction::Descending,
            after: None,
            limit: 100,
        }
    }

    /// Adds a filter: the index must have this value.
    #[must_use]
    pub fn with_filter(mut self, name: IndexName, value: impl Into<IndexValue>) -> Self {
        self.filters.push((name, value.into()));
        self
    }

    /// Sets the order and the direction.
    #[must_use]
    pub fn with_order(mut self, order: RecordOrder, direction: Direction) -> Self {
        (self.order, self.direction) = (order, direction);
        self
    }

    /// Sets the cursor after which the page begins.
    #[must_use]
    pub fn with_after(mut self, after: impl Into<Option<RecordCursor>>) -> Self {
        self.after = after.into();
        self
    }

    /// Sets the maximum number of records of the page.
    #[must_use]
    pub const fn with_limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// The cursor of the page that follows this record; `None` if the record is not in the order's index. The record may have been
    /// deleted since.
    #[must_use]
    pub fn cursor_at(&self, record: &Record) -> Option<RecordCursor> {
        let value = match &self.order {
            RecordOrder::CreatedAt { .. } => None,
            RecordOrder::Index { name, .. } => Some(record.index(name)?.clone()),
        };
        let (query, created_at, number) = (fingerprint(self), record.created_at, record.number);
        Some(RecordCursor { query, value, created_at, number })
    }

    /// Checks the limits of all implementations.
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        if self.filters.len() > MAX_INDEXES {
            return Err(RecordError::Invalid { what: "a query", rule: "it has at most 16 filters" });
        }
        self.filters.iter().try_for_each(|(_, value)| check_value(value))?;
        if let RecordOrder::Index { from, to, .. } = &self.order {
            for bound in [from, to] {
                if let Bound::Included(value) | Bound::Excluded(value) = bound {
                    check_value(value)?;
                }
            }
        }
        let has_value = matches!(self.order, RecordOrder::Index { .. });
        let is_own =
            |cursor: &RecordCursor| cursor.query == fingerprint(self) && cursor.value.is_some() == has_value;
        if self.after.as_ref().is_none_or(is_own) { Ok(()) } else { Err(RecordError::WrongCursor) }
    }
}

/// Identifies a query, whatever its bounds, page and limit are.
fn fingerprint(query: &RecordQuery) -> u64 {
    let mut hasher = DigestHasher::new();
    let mut part = |part: &str| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    };
    part(&query.scope.to_string());
    part(query.kind.as_str());
    part(match query.direction {
        Direction::Ascending => "ascending",
        Direction::Descending => "descending",
    });
    match &query.order {
        RecordOrder::CreatedAt { .. } => part(""),
        RecordOrder::Index { name, .. } => part(name.as_str()),
    }
    for (name, value) in &query.filters {
        part(name.as_str());
        part(&value_text(value));
    }
    let digest = hasher.finish();
    let (first, _) = digest.as_bytes().split_at(8);
    u64::from_le_bytes(first.try_into().unwrap_or_default())
}

/// A page of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPage {
    /// The records: at most as many as the limit, and fewer when their bodies are large.
    pub records: Vec<Record>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<RecordCursor>,
}

/// The maximum number of bytes of bodies in one page, which has one record at least.
pub(crate) const MAX_PAGE_BYTES: usize = 8 << 20;
