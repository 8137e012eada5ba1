//! Sessions without their events: descriptions, lists and snapshots.

use conjure_base::{SessionId, Timestamp};

use crate::key::Epoch;
use crate::lease::Lease;
use crate::session_row::SessionRow;

/// The description of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub session: SessionId,
    /// The number of its events, which is the sequence number of the next one.
    pub events: u64,
    /// The epoch that an append must have.
    pub epoch: Epoch,
    /// The last lease, unless it was released. It may have expired.
    pub lease: Option<Lease>,
    /// The number of events that its snapshot covers; `None` without a snapshot.
    pub snapshot: Option<u64>,
    /// When it was created, by the journal's own clock.
    pub created: Timestamp,
    /// When events were last appended, or when it was created.
    pub updated: Timestamp,
    /// The row that its last append stored; `None` if that append stored no row, or if the row is damaged.
    pub row: Option<SessionRow>,
}

/// The start of the next page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListCursor(u64);

impl ListCursor {
    /// The cursor with this number, for implementations and for clients that stored one.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number, for storage outside of the process.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A page of a tenant's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionInfo>,
    /// The start of the next page; `None` on the last page.
    pub next: Option<ListCursor>,
}

/// The maximum number of entries in one page of a list.
pub(crate) const MAX_LIST_ENTRIES: u32 = 1_000;

/// The state after a session's first events. It only saves time: the events stay, and a reader that does not know the snapshot's version
/// replays them from the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of events that it covers. The first event to replay has this sequence number.
    pub seq: u64,
    /// The version of its format, which the journal does not interpret.
    pub version: u32,
    /// The state.
    pub body: Vec<u8>,
}
