//! Values read from what the system reports of a file.

use conjure_base::{FileFingerprint, FileId, FileTime, Timestamp};
use rustix::fs::Stat;

/// Size of the file in bytes.
pub(crate) fn file_size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Fingerprint of the file.
pub(crate) fn fingerprint(stat: &Stat) -> FileFingerprint {
    FileFingerprint {
        id: FileId { device: stat.st_dev, inode: stat.st_ino },
        size: file_size(stat),
        modified: FileTime { seconds: stat.st_mtime, nanoseconds: nanoseconds(stat.st_mtime_nsec) },
        changed: FileTime { seconds: stat.st_ctime, nanoseconds: nanoseconds(stat.st_ctime_nsec) },
    }
}

/// Last access of the file. The store also sets this time to mark a content as used.
pub(crate) fn last_access(stat: &Stat) -> Timestamp {
    timestamp(stat.st_atime, stat.st_atime_nsec)
}

/// Last change of the file's content, owner, mode or links.
pub(crate) fn last_change(stat: &Stat) -> Timestamp {
    timestamp(stat.st_ctime, stat.st_ctime_nsec)
}

fn timestamp(seconds: i64, nanoseconds: u64) -> Timestamp {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
}

fn nanoseconds(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(0)
}
