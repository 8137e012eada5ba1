//! The row of a session, which a list shows instead of the session's events, and the append that stores it.

use crate::counter::CounterIncrement;
use crate::error::JournalError;
use crate::event::NewEvent;

/// The largest body of a session's row, in bytes.
pub const MAX_SESSION_ROW_BYTES: usize = 64 << 10;

/// What a session does, according to its last append.
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

/// The contents of an append, which one transaction stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendBatch {
    /// The events.
    pub events: Vec<NewEvent>,
    /// The increments of the tenant's counters. They are ignored if there are no events.
    pub increments: Vec<CounterIncrement>,
    /// The session's row after the events. An append of events without a row removes the old row, which no longer describes the
    /// session.
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
