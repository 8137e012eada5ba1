//! Compaction: a summary replaces the first messages of a long history.
//!
//! This is the pure half: when a compaction is due, where the history may be cut, and how the state changes. The state holds the
//! history's size as the service last counted it, and the size from which the next attempt may start. Both follow from recorded events.
//!
//! Compactions always make progress or stop. A summary that is not smaller than what it replaces changes nothing. After each
//! completed attempt, and after two abandoned ones, the next attempt waits until the history has grown.

mod due;
mod policy;
mod steps;

pub use policy::{CompactionError, CompactionPolicy};
pub(crate) use policy::{HistorySize, RunningCompaction};
pub(crate) use steps::{apply_abandoned, apply_compacted, apply_failed, fail, finish, start};
