//! What a journal tells of sessions without loading their events.

use conjure_base::{SessionId, Timestamp};

use crate::key::Epoch;
use crate::lease::Lease;

/// A session, without its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Which.
    pub session: SessionId,
    /// How many events it holds, which is the sequence number of the next one.
    pub events: u64,
    /// Under which epoch an append is taken.
    pub epoch: Epoch,
    /// The last lease, unless it was released. Its time may have passed.
    pub lease: Option<Lease>,
    /// How many events its snapshot covers; `None` without a snapshot.
    pub snapshot: Option<u64>,
    /// When it was created, by the journal's own clock.
    pub created: Timestamp,
    /// When events were last appended, or else when it was created.
    pub updated: Timestamp,
}

/// Where the next page of a list begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListCursor(u64);

impl ListCursor {
    /// The cursor with this number, for an implementation that makes one and for a client that brings one back.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number, for keeping it outside of the process.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Some of a tenant's sessions, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionInfo>,
    /// Where to go on; `None` when these were the last.
    pub next: Option<ListCursor>,
}

/// The most entries in one page of a list.
pub(crate) const LARGEST_LIST: u32 = 1_000;
