//! Which files were digested, so that they need not be opened again.
//!
//! A file is known by its place on the disk, its size and the times of its last change. The kernel's times have steps of
//! some milliseconds, so a file that was changed just before it was read could change again without showing it: such a
//! file is not remembered.
//!
//! State: in memory only; after a crash files are read again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use conjure_base::{Digest, Timestamp};
use rustix::fs::Stat;

/// The most files that are remembered; beyond them all are forgotten.
const MOST: usize = 100_000;

/// A file is remembered when its last change is so old, in milliseconds. Times on network file systems are coarse.
const SETTLED: u64 = 2_000;

/// What a file is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl FileKey {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether a change that comes after `now` will show.
    fn is_settled(&self, now: Timestamp) -> bool {
        let (seconds, _) = self.modified.max(self.changed);
        let last = u64::try_from(seconds).unwrap_or(0).saturating_add(1).saturating_mul(1000);
        last.saturating_add(SETTLED) <= now.millis()
    }
}

/// The files that are known.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<FileKey, Digest>>);

impl Known {
    pub(crate) fn get(&self, key: &FileKey) -> Option<Digest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// Remembers a file that was read after `now`.
    pub(crate) fn put(&self, key: FileKey, digest: Digest, now: Timestamp) {
        if !key.is_settled(now) {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, digest);
    }
}
