//! A state that need not be computed again.

/// What a session's first events amount to. It saves time and is nothing more: events stay, and whoever cannot read a
/// snapshot's version replays them from the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// How many events it covers: the first to replay has this sequence number.
    pub seq: u64,
    /// The version of its format, which the journal does not look at.
    pub version: u32,
    /// The state.
    pub body: Vec<u8>,
}
