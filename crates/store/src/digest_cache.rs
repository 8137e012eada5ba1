//! Cache of the digests of files, so that an unchanged file need not be read again.
//!
//! The key is the file's fingerprint: device, inode, size and times. The kernel's times have steps of some
//! milliseconds, so a file that changed just before it was read could change again without a new time. Such a file is
//! not cached.
//!
//! State: in memory only. After a crash, files are read again.

use std::collections::HashMap;
use std::sync::Mutex;

use conjure_base::{Digest, FileFingerprint, Timestamp, lock};

/// The maximum number of cached files. When it is reached, the cache is emptied.
const MAX_ENTRIES: usize = 100_000;

/// The age in milliseconds that the last change of a file must have. Times on network file systems are coarse.
const MIN_AGE_MILLIS: u64 = 2_000;

#[derive(Debug, Default)]
pub(crate) struct DigestCache(Mutex<HashMap<FileFingerprint, Digest>>);

impl DigestCache {
    pub(crate) fn get(&self, file: &FileFingerprint) -> Option<Digest> {
        lock(&self.0).get(file).copied()
    }

    /// Caches the digest of a file whose reading began after `now`.
    pub(crate) fn put(&self, file: FileFingerprint, digest: Digest, now: Timestamp) {
        if !is_cacheable(&file, now) {
            return;
        }
        let mut cache = lock(&self.0);
        if cache.len() >= MAX_ENTRIES {
            cache.clear();
        }
        cache.insert(file, digest);
    }
}

/// Whether each change of the file after `now` will show in its times.
fn is_cacheable(file: &FileFingerprint, now: Timestamp) -> bool {
    let last = file.modified.max(file.changed).seconds;
    let last = u64::try_from(last).unwrap_or(0).saturating_add(1).saturating_mul(1000);
    last.saturating_add(MIN_AGE_MILLIS) <= now.millis()
}
