//! Events of the journal: a kind, a version, and bytes.

use std::borrow::Cow;

use crate::error::JournalError;

/// The longest name of a kind, in bytes.
pub const MAX_KIND_BYTES: usize = 128;

/// The constant size of an event, a snapshot or a session in [`stored_bytes`](crate::Journal::stored_bytes).
pub const ROW_BYTES: u64 = 64;

/// An event to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Its kind; each kind has its own versions. At most [`MAX_KIND_BYTES`] bytes.
    pub kind: Cow<'static, str>,
    /// The version of the kind's format.
    pub version: u32,
    /// The body, in that format.
    pub body: Vec<u8>,
}

impl NewEvent {
    /// An event of this kind and version.
    pub fn new(kind: impl Into<Cow<'static, str>>, version: u32, body: Vec<u8>) -> Self {
        Self { kind: kind.into(), version, body }
    }
}

/// An appended event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Its sequence number in the session, from 0.
    pub seq: u64,
    /// The epoch of its append.
    pub epoch: crate::Epoch,
    /// Its kind.
    pub kind: String,
    /// The version of the kind's format.
    pub version: u32,
    /// The body.
    pub body: Vec<u8>,
}

/// The limits of one page. A page has at least one event, however large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// The maximum number of events.
    pub events: u32,
    /// The maximum number of bytes of all bodies.
    pub bytes: usize,
}

impl Default for PageLimit {
    /// 512 events, 4 MiB.
    fn default() -> Self {
        Self { events: 512, bytes: 4 << 20 }
    }
}

/// Consecutive events of a session, as a consistent snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The events; empty after the last one.
    pub events: Vec<RecordedEvent>,
    /// The number of events in the session at that time.
    pub total: u64,
}

impl EventPage {
    /// The sequence number of the next page; `None` on the last page.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let next = self.events.last()?.seq.saturating_add(1);
        (next < self.total).then_some(next)
    }
}

/// Checks the limits of all implementations.
pub(crate) fn check_events(events: &[NewEvent]) -> Result<(), JournalError> {
    match events.iter().map(|event| event.kind.len()).max() {
        Some(size) if size > MAX_KIND_BYTES => {
            Err(JournalError::TooLarge { what: "the name of an event's kind", size, limit: MAX_KIND_BYTES })
        }
        _ => Ok(()),
    }
}
