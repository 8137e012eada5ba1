//! How much a file operation may write: the guest notes what was measured last, and the worker measures anew before it
//! refuses anything.
//!
//! What was measured may be out of date: it may have seen what an operation that failed has taken back since, and what
//! commands have removed is seen by the next measurement only. So nobody is refused on account of it.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::Pid;

use conjure_guest::protocol::{DiskUsage, ErrorCode, GuestError, QuotaExcess};

use super::measure::measure;
use super::{beyond, plus};

/// What a file takes on the disk is a multiple of this, in bytes, on most file systems.
const BLOCK: u64 = 4096;

/// One byte for so many of a file's content is allowed for what the file system notes about it: where its pieces lie.
const NOTES: u64 = 256;

/// How much may be written beneath a folder, as the guest knows it.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    /// The folder, an absolute path.
    pub(crate) path: &'a str,
    /// Its handle.
    pub(crate) folder: BorrowedFd<'a>,
    pub(crate) allowed: DiskUsage,
    /// What it took when it was measured last, and what was written since.
    pub(crate) used: DiskUsage,
}

/// The same in a worker, for its one operation.
#[derive(Debug)]
pub(crate) struct Allowance<'a> {
    /// Beneath this folder, an absolute path.
    pub(crate) path: &'a str,
    folder: OwnedFd,
    guest: Pid,
    allowed: DiskUsage,
    /// What it takes without the operation.
    used: Cell<DiskUsage>,
    /// Whether that was measured for this operation.
    is_fresh: Cell<bool>,
}

impl<'a> Allowance<'a> {
    /// What a worker may write; `folder` is its copy of the handle.
    pub(crate) const fn new(room: &Room<'a>, folder: OwnedFd, guest: Pid) -> Self {
        let (used, is_fresh) = (Cell::new(room.used), Cell::new(false));
        Self { path: room.path, folder, guest, allowed: room.allowed, used, is_fresh }
    }

    /// Refuses what would be too much: the operation is to take `whole`, and takes `so_far` already.
    pub(crate) fn check(
        &self,
        whole: DiskUsage,
        so_far: impl FnOnce() -> DiskUsage,
    ) -> Result<(), QuotaExcess> {
        if !self.has_room_for(whole) && !self.is_fresh.replace(true) {
            // Where it cannot be measured, what was known holds.
            if let Ok(found) = measure(&self.folder, self.path, self.guest, beyond(self.allowed)) {
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

/// What a file of so many bytes and so many new folders take at most.
pub(crate) const fn takes(size: u64, folders: u64) -> DiskUsage {
    let notes = (size / NOTES).next_multiple_of(BLOCK);
    DiskUsage {
        bytes: size.next_multiple_of(BLOCK).saturating_add(notes).saturating_add(folders * BLOCK),
        inodes: folders + 1,
    }
}

/// Why the file at `path` is not written.
pub(crate) fn no_room(excess: &QuotaExcess, path: &str, doing: &str) -> GuestError {
    let QuotaExcess { used, allowed } = excess;
    let message = format!(
        "cannot {doing} `{path}`: the workspace would take more of the disk than it may (it takes {} of {} bytes, {} of \
         {} files and folders); remove what is not needed",
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
        assert_eq!(takes(0, 0), DiskUsage { bytes: 0, inodes: 1 });
        assert_eq!(takes(1, 0), DiskUsage { bytes: 4096, inodes: 1 });
        assert_eq!(takes(4096, 2), DiskUsage { bytes: 4096 + 4096 + 8192, inodes: 3 });
        assert_eq!(takes(1 << 20, 0), DiskUsage { bytes: (1 << 20) + 4096, inodes: 1 });
    }

    #[test]
    fn what_was_known_refuses_nobody_and_what_is_measured_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let handle: OwnedFd = fs::File::open(folder.path()).expect("opened").into();
        let allowed = DiskUsage { bytes: 1 << 20, inodes: 10 };
        let known = |used| {
            let room = Room { path: "/", folder: handle.as_fd(), allowed, used };
            let copy = handle.try_clone().expect("a copy");
            Allowance::new(&room, copy, rustix::process::getpid())
        };
        // A measurement saw files that are gone.
        let allowance = known(DiskUsage { bytes: 2 << 20, inodes: 300 });
        assert_eq!(allowance.check(takes(1, 0), || NOTHING), Ok(()));
        // Enough is known, so nothing is measured.
        let allowance = known(NOTHING);
        fs::write(folder.path().join("large"), vec![1; 1 << 20]).expect("written");
        assert_eq!(allowance.check(takes(1, 0), || NOTHING), Ok(()));
        // What the operation has written itself is no hindrance to it.
        let allowance = known(DiskUsage { bytes: 2 << 20, inodes: 2 });
        assert_eq!(allowance.check(takes(1 << 19, 0), || DiskUsage { bytes: 1 << 20, inodes: 1 }), Ok(()));
        // It is measured once.
        let excess = known(DiskUsage { bytes: 2 << 20, inodes: 2 }).check(takes(1 << 19, 0), || NOTHING);
        assert!(excess.is_err_and(|excess| excess.used.bytes >= 1 << 20 && excess.used.bytes < 2 << 20));
    }
}
