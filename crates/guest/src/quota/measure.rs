//! Measuring what a folder takes of the disk: the side of a child or a worker.
//!
//! The folder changes while it is measured; what is moved meanwhile may be counted twice or not at all, and the next
//! measurement sees it. However deep folders are nested, two handles are open: the way up is by `..`, and checked.
//!
//! A file that has no name any more is found where a process has it open, runs it, or is in it. Where a process may hold
//! others, the measurement says so ([`Measurement::is_complete`]): the process lets nobody look into it, has mapped a file that it
//! has not open, or has a socket with descriptors on their way. Kernels before 5.11 do not tell of the latter.

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

/// How what is said of a socket there begins.
const SOCKET: &[u8] = b"socket:";

/// What a folder was found to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measurement {
    pub(super) used: DiskUsage,
    /// Whether nothing can be hidden: no process may hold files that have no name, and that cannot be seen.
    pub(super) is_complete: bool,
}

/// Measures what lies beneath an open folder, the folder itself included, and what descendants of `guest` have open that
/// was removed from its file system. Once it is more than `enough`, of either, the rest is not looked at.
///
/// `path` is where the folder lies, for those that have mapped files of it.
pub(super) fn measure(
    folder: &OwnedFd,
    path: &str,
    guest: Pid,
    enough: DiskUsage,
) -> Result<Measurement, Errno> {
    // The handle may be one that only stands for the folder.
    let top = rustix::fs::openat(folder, ".", FOLDER, Mode::empty())?;
    let stat = rustix::fs::fstat(&top)?;
    let mut count =
        Count { device: stat.st_dev, enough, used: DiskUsage::default(), several: HashSet::new() };
    count.add(&stat);
    count.walk(&top)?;
    let mut is_complete = true;
    if count.used.is_within(&enough) {
        let mut holders = Holders { count: &mut count, path: format!("{path}/"), sockets: HashSet::new() };
        for pid in tree::descendants_of(guest) {
            // What the guest has forked itself holds nothing, and lets nobody look.
            is_complete &= holders.add(pid) || tree::is_child_of(pid, guest);
        }
    }
    Ok(Measurement { used: count.used, is_complete })
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
}

/// Counts the files that have no name any more, by those who hold them.
struct Holders<'a> {
    count: &'a mut Count,
    /// The folder's path, with a slash at its end.
    path: String,
    /// Those that were looked at.
    sockets: HashSet<Vec<u8>>,
}

impl Holders<'_> {
    /// Counts what a process holds of the folder's file system that has no name. Whether that is all it may hold.
    fn add(&mut self, pid: Pid) -> bool {
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        let (mut is_complete, mut is_memory_known) = (true, false);
        // All threads have the same memory, but each may have descriptors and a folder of its own.
        for thread in tree::threads_of(pid) {
            let folder = format!("{process}/task/{}", thread.as_raw_nonzero());
            let is_known = self.add_thread(&folder).unwrap_or(false)
                && (is_memory_known || self.are_mappings_known(&folder));
            // The first thread may have ended before the others.
            if tree::is_alive(pid, thread) {
                is_complete &= is_known;
                is_memory_known = true;
            }
        }
        is_complete
    }

    /// Counts what a thread has open, is in, or runs.
    fn add_thread(&mut self, thread: &str) -> Result<bool, Errno> {
        let place = rustix::fs::open(thread, FOLDER, Mode::empty())?;
        for name in [c"exe", c"cwd", c"root"] {
            self.add_removed(&place, name);
        }
        let folder = rustix::fs::openat(&place, "fd", FOLDER, Mode::empty())?;
        let mut is_complete = true;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_new_socket = self.add_removed(&folder, name).is_some_and(|link| {
                link.as_bytes().starts_with(SOCKET) && self.sockets.insert(link.into_bytes())
            });
            if is_new_socket {
                let number = name.to_string_lossy();
                is_complete &= !has_descriptors_under_way(&format!("{thread}/fdinfo/{number}"));
            }
        }
        Ok(is_complete)
    }

    /// Counts what a link of `/proc` leads to where that was removed. Yields what the link says where it is something else.
    fn add_removed(&mut self, folder: &OwnedFd, name: &CStr) -> Option<CString> {
        // Only what was removed is looked at: other files may lie where looking takes long.
        let link = rustix::fs::readlinkat(folder, name, Vec::new()).ok()?;
        if !link.as_bytes().ends_with(DELETED) {
            return Some(link);
        }
        if let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::empty())
            && stat.st_nlink == 0
        {
            self.count.add(&stat);
        }
        None
    }

    /// Whether all files of the folder that a process has mapped, and that were removed, were counted: how large they are is
    /// not seen here.
    fn are_mappings_known(&self, thread: &str) -> bool {
        let Ok(maps) = std::fs::read(format!("{thread}/maps")) else { return false };
        maps.split(|byte| *byte == b'\n').filter(|line| line.ends_with(DELETED)).all(|line| {
            // Addresses, rights, offset, device, inode, path.
            let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
            let inode = fields.nth(4).and_then(|inode| std::str::from_utf8(inode).ok()?.parse().ok());
            let is_here = fields.next().is_some_and(|path| path.starts_with(self.path.as_bytes()));
            !is_here || inode.is_some_and(|inode| self.count.several.contains(&inode))
        })
    }
}

/// Whether a socket has received descriptors that nobody has taken yet.
fn has_descriptors_under_way(info: &str) -> bool {
    // It was closed meanwhile, and is looked at by the next measurement.
    let Ok(info) = std::fs::read_to_string(info) else { return false };
    info.lines().any(|line| line.strip_prefix("scm_fds:").is_some_and(|count| count.trim() != "0"))
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
