//! The row of a session: what a list shows of it without its events.

use std::ops::Bound;

use conjure_base::Timestamp;

use crate::counter::CounterIncrement;
use crate::error::JournalError;
use crate::event::NewEvent;
use crate::key::SessionKey;
use crate::record::Direction;
use crate::session::ListCursor;

/// The largest body of a session's row, in bytes.
pub const MAX_SESSION_ROW_BYTES: usize = 64 << 10;

/// What a session does, as its last append says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RowStatus {
    /// It waits for an input.
    Idle,
    /// A turn is under way, or an input waits for its turn. If no process drives it, one must resume it.
    Running,
    /// Its turn waits for a decision or a result from outside.
    AwaitingAction,
}

/// The row of a session. A writer stores it with each append, so it describes all events. The journal interprets its status only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// What the session does.
    pub status: RowStatus,
    /// The version of the body's format.
    pub version: u32,
    /// The body, at most [`MAX_SESSION_ROW_BYTES`].
    pub body: Vec<u8>,
}

/// What an append stores in one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendBatch {
    /// The events.
    pub events: Vec<NewEvent>,
    /// The increments of the tenant's counters. Without events they are left out.
    pub increments: Vec<CounterIncrement>,
    /// The session's row after the events. If events are appended without a row, the session has none, since the old one no longer describes it.
    pub row: Option<SessionRow>,
}

impl AppendBatch {
    /// A batch of these events alone.
    #[must_use]
    pub fn new(events: Vec<NewEvent>) -> Self {
        Self { events, ..Self::default() }
    }

    /// Adds increments of counters.
    #[must_use]
    pub fn with_increments(mut self, increments: Vec<CounterIncrement>) -> Self {
        self.increments = increments;
        self
    }

    /// Sets the session's row.
    #[must_use]
    pub fn with_row(mut self, row: impl Into<Option<SessionRow>>) -> Self {
        self.row = row.into();
        self
    }

    /// Checks the limit of the row in all implementations.
    pub(crate) fn check_row(&self) -> Result<(), JournalError> {
        let size = self.row.as_ref().map_or(0, |row| row.body.len());
        if size > MAX_SESSION_ROW_BYTES {
            return Err(JournalError::TooLarge {
                what: "the row of the session",
                size,
                limit: MAX_SESSION_ROW_BYTES,
            });
        }
        Ok(())
    }
}

/// Which sessions of a tenant are listed. The order is that of their creation.
///
/// A page costs what it returns, also with statuses and bounds of the creation. Bounds of the last append are checked session by session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only sessions whose row has one of these statuses; empty: all sessions, also those without a row.
    pub statuses: Vec<RowStatus>,
    /// The bounds of the creation.
    pub created: (Bound<Timestamp>, Bound<Timestamp>),
    /// The bounds of the last append.
    pub updated: (Bound<Timestamp>, Bound<Timestamp>),
    /// The direction: descending lists the newest first.
    pub direction: Direction,
    /// Where the page begins; `None`: at the first session. A cursor is good for both directions.
    pub after: Option<ListCursor>,
    /// The most sessions, 1 to 1,000.
    pub limit: u32,
}

impl Default for SessionQuery {
    /// All sessions, the newest first, 100 a page.
    fn default() -> Self {
        Self {
            statuses: Vec::new(),
            created: (Bound::Unbounded, Bound::Unbounded),
            updated: (Bound::Unbounded, Bound::Unbounded),
            direction: Direction::Descending,
            after: None,
            limit: 100,
        }
    }
}

/// A page of sessions with the status [`RowStatus::Running`], of all tenants, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPage {
    /// The sessions.
    pub sessions: Vec<SessionKey>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<ListCursor>,
}
