//! Reads values from the `stat` of a file.

use conjure_base::Timestamp;
use rustix::fs::Stat;

/// Last access of the file. The store also sets this time to mark a content as used.
pub(crate) fn last_access(stat: &Stat) -> Timestamp {
    timestamp(stat.st_atime, stat.st_atime_nsec)
}

fn timestamp(seconds: i64, nanoseconds: u64) -> Timestamp {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
}
