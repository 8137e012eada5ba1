//! Events as the journal sees them: a kind, a version, and bytes.

use std::borrow::Cow;

/// The longest name of a kind of events, in bytes.
pub const LONGEST_KIND: usize = 128;

/// What an event, a snapshot or a session counts for in [`recorded_bytes`](crate::Journal::recorded_bytes), beside what it says.
pub const ROW_BYTES: u64 = 64;

/// An event that is to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What kind of event it is, which decides what its version counts. At most [`LONGEST_KIND`] bytes.
    pub kind: Cow<'static, str>,
    /// The version of the kind's format.
    pub version: u32,
    /// What happened, in that format.
    pub body: Vec<u8>,
}

impl NewEvent {
    /// An event of this kind and version.
    pub fn new(kind: impl Into<Cow<'static, str>>, version: u32, body: Vec<u8>) -> Self {
        Self { kind: kind.into(), version, body }
    }
}

/// An event that was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its place in the session, from 0.
    pub seq: u64,
    /// Under which epoch it was appended.
    pub epoch: crate::Epoch,
    /// What kind of event it is.
    pub kind: String,
    /// The version of the kind's format in which its body is.
    pub version: u32,
    /// What happened.
    pub body: Vec<u8>,
}

/// How much is loaded at once. At least one event is, however large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// The most events.
    pub events: u32,
    /// The most bytes of bodies together.
    pub bytes: usize,
}

impl Default for PageLimit {
    /// 512 events, 4 MiB.
    fn default() -> Self {
        Self { events: 512, bytes: 4 << 20 }
    }
}

/// A session's events from some place on, without a hole, as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The events. Empty when the session has none from there on.
    pub events: Vec<Recorded>,
    /// How many events the session held at that moment.
    pub total: u64,
}

impl EventPage {
    /// Where the next page begins; `None` when this one reaches the end.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let next = self.events.last()?.seq.saturating_add(1);
        (next < self.total).then_some(next)
    }
}
