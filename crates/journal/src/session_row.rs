//! The row of a session, and the append that stores it: what a list shows of the session without its events.

use crate::counter::CounterIncrement;
use crate::error::JournalError;
use crate::event::NewEvent;

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
