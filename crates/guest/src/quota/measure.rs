//! Measuring what a folder takes of the disk: the side of a child or a worker.
//!
//! The folder changes while it is measured; what is moved meanwhile may be counted twice or not at all, and the next
//! measurement sees it. However deep folders are nested, two handles are open: the way up is by `..`, and checked.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::Pid;

use conjure_guest::protocol::DiskUsage;

use super::plus;
use crate::{sys, tree};

/// Bytes of a block as `st_blocks` counts them, whatever the file system's are.
const BLOCK: u64 = 512;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is said of a file in `/proc/PID/fd` that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// Measures what lies beneath an open folder, the folder itself included, and what descendants of `guest` have open that
/// was removed from its file system. Once it is more than `enough`, of either, the rest is not looked at.
pub(super) fn measure(folder: &OwnedFd, guest: Pid, enough: DiskUsage) -> Result<DiskUsage, Errno> {
    // The handle may be one that only stands for the folder.
    let top = rustix::fs::openat(folder, ".", FOLDER, Mode::empty())?;
    let stat = rustix::fs::fstat(&top)?;
    let mut count =
        Count { device: stat.st_dev, enough, used: DiskUsage::default(), several: HashSet::new() };
    count.add(&stat);
    count.walk(&top)?;
    if count.used.is_within(&enough) {
        count.open_files(guest);
    }
    Ok(count.used)
}

/// What one file or folder takes.
pub(crate) fn of_stat(stat: &Stat) -> DiskUsage {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    DiskUsage { bytes: blocks.saturating_mul(BLOCK), inodes: 1 }
}

struct Count {
    device: u64,
    enough: DiskUsage,
    used: DiskUsage,
    /// The files that have several names, and those that have none: each counts once.
    several: HashSet<u64>,
}

/// A folder on the way down from the top.
struct Level {
    /// What it is called in the folder above it.
    name: CString,
    identity: (u64, u64),
    /// The permissions that it had, where it was given some to be looked into.
    mode: Option<Mode>,
    /// The folders in it that were not entered yet.
    folders: Vec<CString>,
}

impl Count {
    fn add(&mut self, stat: &Stat) {
        let is_file = FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        let is_counted = is_file && stat.st_nlink != 1 && !self.several.insert(stat.st_ino);
        if stat.st_dev != self.device || is_counted {
            return;
        }
        self.used = plus(self.used, of_stat(stat));
    }

    /// Counts what is beneath the top.
    fn walk(&mut self, top: &OwnedFd) -> Result<(), Errno> {
        let mut at = rustix::fs::openat(top, ".", FOLDER, Mode::empty())?;
        let mut way = vec![self.level(&at, CString::default(), None)?];
        while let Some(level) = way.last_mut() {
            // A worker that is to end looks at this itself.
            if sys::is_termination_pending() {
                return Err(Errno::INTR);
            }
            let is_enough = !self.used.is_within(&self.enough);
            if let Some(name) = level.folders.pop().filter(|_| !is_enough) {
                // Otherwise it was removed or replaced meanwhile, or something is mounted there.
                if let Ok((next, mode)) = enter(&at, &name) {
                    way.push(self.level(&next, name, mode)?);
                    at = next;
                }
                continue;
            }
            if let Some(mode) = level.mode {
                restore(&at, mode);
            }
            way.pop();
            if let Some(above) = way.last() {
                at = match rustix::fs::openat(&at, "..", FOLDER, Mode::empty()) {
                    Ok(up) if identity(&rustix::fs::fstat(&up)?) == above.identity => up,
                    // The folder was moved, and what is above it now is elsewhere.
                    _ => regain(top, &mut way)?,
                };
            }
        }
        Ok(())
    }

    /// Counts what is in a folder, and notes the folders in it.
    fn level(&mut self, folder: &OwnedFd, name: CString, mode: Option<Mode>) -> Result<Level, Errno> {
        let mut folders = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.add(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && stat.st_dev == self.device {
                folders.push(name.to_owned());
            }
            if !self.used.is_within(&self.enough) {
                break;
            }
        }
        Ok(Level { name, identity: identity(&rustix::fs::fstat(folder)?), mode, folders })
    }

    /// Counts the files of the same file system that were removed and are still open in a process below the guest. Of a
    /// process that lets nobody look, nothing is counted.
    fn open_files(&mut self, guest: Pid) {
        for pid in tree::descendants_of(guest) {
            let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
            let Ok(folder) = rustix::fs::open(path, FOLDER, Mode::empty()) else { continue };
            let Ok(entries) = Dir::read_from(&folder) else { continue };
            for entry in entries.flatten() {
                // Only what was removed is looked at: other files may lie where looking takes long.
                let link = rustix::fs::readlinkat(&folder, entry.file_name(), Vec::new());
                if !link.is_ok_and(|link| link.as_bytes().ends_with(DELETED)) {
                    continue;
                }
                if let Ok(stat) = rustix::fs::statat(&folder, entry.file_name(), AtFlags::empty())
                    && stat.st_nlink == 0
                {
                    self.add(&stat);
                }
            }
        }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens a folder within a folder, through no link and into no mount. One that its owner took the right to look into
/// gets it back for as long as it is looked into, since it can be filled nevertheless; then its former permissions are
/// told, too.
fn enter(folder: &OwnedFd, name: &CStr) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |flags| rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve);
    let found = open(FOLDER);
    let needed = Mode::RUSR | Mode::XUSR;
    if let Ok(next) = &found
        && Mode::from_raw_mode(rustix::fs::fstat(next)?.st_mode).contains(needed)
    {
        return found.map(|next| (next, None));
    }
    let place = open(OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    let stat = rustix::fs::fstat(&place)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return found.map(|next| (next, None));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    restore(&place, mode | needed);
    match open(FOLDER) {
        Ok(next) => Ok((next, Some(mode))),
        Err(errno) => {
            restore(&place, mode);
            Err(errno)
        }
    }
}

/// Gives a folder these permissions, by its handle. Where that cannot be, it stays as it is.
fn restore(folder: &OwnedFd, mode: Mode) {
    let _ = rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode);
}

/// Goes down from the top anew, as far as the way still leads to the same folders. The rest of the way is given up: what
/// was moved is where it is now, and was counted there or not.
fn regain(top: &OwnedFd, way: &mut Vec<Level>) -> Result<OwnedFd, Errno> {
    let mut at = rustix::fs::openat(top, ".", FOLDER, Mode::empty())?;
    let mut reached = 1;
    while let Some(level) = way.get(reached) {
        match enter(&at, &level.name) {
            Ok((next, _)) if identity(&rustix::fs::fstat(&next)?) == level.identity => at = next,
            _ => break,
        }
        reached += 1;
    }
    way.truncate(reached);
    Ok(at)
}
