//! Limits what a file operation may write. The guest passes the last known usage, and the worker measures again
//! before it refuses anything.
//!
//! The known usage may be out of date. It may include files that a failed operation removed since, or that
//! commands removed. So it alone never refuses an operation.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::Pid;

use conjure_guest::protocol::{DiskUsage, ErrorCode, GuestError, QuotaExcess};

use super::measure::measure;
use super::usage::{hard_limit, plus};

/// On most file systems, a file uses a multiple of this many bytes.
const BLOCK: u64 = 4096;

/// One byte of file system metadata is allowed for this many bytes of content.
const BYTES_PER_METADATA_BYTE: u64 = 256;

/// The write budget of a directory, as the guest knows it.
#[derive(Debug)]
pub(crate) struct WriteBudget<'a> {
    /// The directory's absolute path.
    pub(crate) path: &'a str,
    /// The directory's handle.
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) allowed: DiskUsage,
    /// The last measured usage, and what was written since.
    pub(crate) used: DiskUsage,
}

/// The write budget in a worker, for its one operation.
#[derive(Debug)]
pub(crate) struct WorkerWriteBudget<'a> {
    /// The directory's absolute path.
    pub(crate) path: &'a str,
    dir: OwnedFd,
    guest: Pid,
    allowed: DiskUsage,
    /// The usage without the operation.
    used: Cell<DiskUsage>,
    /// Whether `used` was measured for this operation.
    is_fresh: Cell<bool>,
}

impl<'a> WorkerWriteBudget<'a> {
    /// Creates the budget of a worker. `dir` is its copy of the handle.
    pub(crate) const fn new(room: &WriteBudget<'a>, dir: OwnedFd, guest: Pid) -> Self {
        let (used, is_fresh) = (Cell::new(room.used), Cell::new(false));
        Self { path: room.path, dir, guest, allowed: room.allowed, used, is_fresh }
    }

    /// Checks a planned usage. `whole` is the operation's final usage, `so_far` the current one.
    pub(crate) fn check(
        &self,
        whole: DiskUsage,
        so_far: impl FnOnce() -> DiskUsage,
    ) -> Result<(), QuotaExcess> {
        if !self.has_room_for(whole) && !self.is_fresh.replace(true) {
            // If measuring fails, the known usage applies.
            if let Ok(found) = measure(&self.dir, self.path, self.guest, hard_limit(self.allowed)) {
                let now = found.used;
                let own = so_far();
                self.used.set(DiskUsage {
                    bytes: now.bytes.saturating_sub(own.bytes),
                    inodes: now.inodes.saturating_sub(own.inodes),
                });
            }
        }
        if self.has_room_for(whole) {
            return Ok(());
        }
        Err(QuotaExcess { used: self.used.get(), allowed: self.allowed })
    }

    fn has_room_for(&self, whole: DiskUsage) -> bool {
        plus(self.used.get(), whole).is_within(&self.allowed)
    }
}

/// Returns an upper bound of what a file of `size` bytes and new directories use.
pub(crate) const fn estimate_usage(size: u64, dirs: u64) -> DiskUsage {
    let metadata = (size / BYTES_PER_METADATA_BYTE).next_multiple_of(BLOCK);
    DiskUsage {
        bytes: size.next_multiple_of(BLOCK).saturating_add(metadata).saturating_add(dirs * BLOCK),
        inodes: dirs + 1,
    }
}

/// The error when the file at `path` cannot be written.
pub(crate) fn quota_error(excess: &QuotaExcess, path: &str, doing: &str) -> GuestError {
    let QuotaExcess { used, allowed } = excess;
    let message = format!(
        "cannot {doing} `{path}`: the workspace would exceed its disk quota (it uses {} of {} bytes, {} of {} files and \
         directories); remove files that are not needed",
        used.bytes, allowed.bytes, used.inodes, allowed.inodes
    );
    crate::error::error(ErrorCode::NoSpace, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;

    use super::*;

    const NOTHING: DiskUsage = DiskUsage { bytes: 0, inodes: 0 };

    #[test]
    fn a_file_takes_whole_blocks_and_notes_of_them() {
        assert_eq!(estimate_usage(0, 0), DiskUsage { bytes: 0, inodes: 1 });
        assert_eq!(estimate_usage(1, 0), DiskUsage { bytes: 4096, inodes: 1 });
        assert_eq!(estimate_usage(4096, 2), DiskUsage { bytes: 4096 + 4096 + 8192, inodes: 3 });
        assert_eq!(estimate_usage(1 << 20, 0), DiskUsage { bytes: (1 << 20) + 4096, inodes: 1 });
    }

    #[test]
    fn only_a_fresh_measurement_refuses() {
        let dir = tempfile::tempdir().expect("a directory");
        let handle: OwnedFd = fs::File::open(dir.path()).expect("opened").into();
        let allowed = DiskUsage { bytes: 1 << 20, inodes: 10 };
        let known = |used| {
            let room = WriteBudget { path: "/", dir: handle.as_fd(), allowed, used };
            let copy = handle.try_clone().expect("a copy");
            WorkerWriteBudget::new(&room, copy, rustix::process::getpid())
        };
        // The known usage includes files that are gone.
        let allowance = known(DiskUsage { bytes: 2 << 20, inodes: 300 });
        assert_eq!(allowance.check(estimate_usage(1, 0), || NOTHING), Ok(()));
        // The known usage suffices, so nothing is measured.
        let allowance = known(NOTHING);
        fs::write(dir.path().join("large"), vec![1; 1 << 20]).expect("written");
        assert_eq!(allowance.check(estimate_usage(1, 0), || NOTHING), Ok(()));
        // What the operation itself wrote does not count against it.
        let allowance = known(DiskUsage { bytes: 2 << 20, inodes: 2 });
        assert_eq!(
            allowance.check(estimate_usage(1 << 19, 0), || DiskUsage { bytes: 1 << 20, inodes: 1 }),
            Ok(())
        );
        // It is measured once.
        let excess =
            known(DiskUsage { bytes: 2 << 20, inodes: 2 }).check(estimate_usage(1 << 19, 0), || NOTHING);
        assert!(excess.is_err_and(|excess| excess.used.bytes >= 1 << 20 && excess.used.bytes < 2 << 20));
    }
}
