//! Measures the disk usage of a directory, in a child or a worker.
//!
//! The directory changes during the measurement. A file that is moved meanwhile may be counted twice or not at all;
//! the next measurement corrects this. Only two handles are open, however deep the directories are: the walk goes up
//! by `..`, and checks the result.
//!
//! A deleted file is found through the processes that have it open, execute it, or have it as their working
//! directory. A process may hold deleted files that cannot be found. Then the result is [`Incomplete`]: the process
//! does not allow inspection, has mapped a file that it has not open, or has a socket with descriptors in transit.
//! Kernels before 5.11 do not report the last case.
//!
//! [`Incomplete`]: Completeness::Incomplete

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::Pid;

use conjure_guest::protocol::DiskUsage;

use super::mounts::{Mounts, is_mount_point, parse_device};
use super::usage::plus;
use crate::{process_tree, sys};

/// The unit of `st_blocks`, in bytes, on every file system.
const BLOCK: u64 = 512;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How links in `/proc/PID/fd` end when the file is deleted.
const DELETED: &[u8] = b" (deleted)";

/// How such links begin for sockets.
const SOCKET: &[u8] = b"socket:";

/// The result of a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measurement {
    pub(super) used: DiskUsage,
    pub(super) completeness: Completeness,
}

/// Whether a measurement saw all deleted files that processes hold. A larger value saw less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Completeness {
    /// It saw all.
    #[default]
    Complete = 0,
    /// It did not see into programs that were being started. None of their own code has run, so they hide nothing.
    ProgramStarting = 1,
    /// A process may hold deleted files that it did not see.
    Incomplete = 2,
}

/// Measures an open directory, including itself, and the deleted files of its file system that descendants of `guest`
/// have open. Stops once the usage is more than `enough`.
///
/// `path` is the directory's path, to recognise mapped files.
pub(super) fn measure(
    directory: &OwnedFd,
    path: &str,
    guest: Pid,
    enough: DiskUsage,
) -> Result<Measurement, Errno> {
    // The handle may be an `O_PATH` handle.
    let top = rustix::fs::openat(directory, ".", DIR, Mode::empty())?;
    let stat = rustix::fs::fstat(&top)?;
    let mut count = UsageCounter {
        devices: HashSet::from([stat.st_dev]),
        enough,
        used: DiskUsage::default(),
        several: HashSet::new(),
        is_complete: true,
    };
    count.add(&stat);
    count.walk(&top)?;
    let mut completeness = if count.is_complete { Completeness::Complete } else { Completeness::Incomplete };
    if count.used.is_within(&enough) {
        let mut holders = OpenFileCounter {
            count: &mut count,
            top: &top,
            mounts: OnceCell::new(),
            path: format!("{path}/"),
            sockets: HashSet::new(),
        };
        for pid in process_tree::descendants_of(guest) {
            // The guest's own children hold no files, and do not allow inspection.
            if !holders.add(pid) && !process_tree::is_child_of(pid, guest) {
                completeness = completeness.max(match process_tree::is_being_started(pid, guest) {
                    true => Completeness::ProgramStarting,
                    false => Completeness::Incomplete,
                });
            }
        }
    }
    Ok(Measurement { used: count.used, completeness })
}

/// Returns the disk usage of one file or directory.
pub(crate) fn usage_from_stat(stat: &Stat) -> DiskUsage {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    DiskUsage { bytes: blocks.saturating_mul(BLOCK), inodes: 1 }
}

struct UsageCounter {
    /// The devices of the directory's file system. One with layers, or with subvolumes, has several.
    devices: HashSet<u64>,
    enough: DiskUsage,
    used: DiskUsage,
    /// The files with several names or none. Each counts once.
    several: HashSet<(u64, u64)>,
    /// Whether it could read every directory that programs can use.
    is_complete: bool,
}

/// A directory on the way down from the top.
struct Level {
    /// Its name in the parent directory.
    name: CString,
    identity: (u64, u64),
    /// Its former permissions, if they were changed to read it.
    mode: Option<Mode>,
    /// The subdirectories that the walk has not entered yet.
    directories: Vec<CString>,
}

impl UsageCounter {
    fn add(&mut self, stat: &Stat) {
        let is_file = FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        let is_counted = is_file && stat.st_nlink != 1 && !self.several.insert(identity(stat));
        if !is_counted {
            self.used = plus(self.used, usage_from_stat(stat));
        }
    }

    /// Whether a file with this inode number, and with several names or none, was counted.
    fn has_counted(&self, inode: u64) -> bool {
        self.devices.iter().any(|device| self.several.contains(&(*device, inode)))
    }

    /// Counts everything beneath the top.
    fn walk(&mut self, top: &OwnedFd) -> Result<(), Errno> {
        let mut at = rustix::fs::openat(top, ".", DIR, Mode::empty())?;
        let mut way = vec![self.level(&at, CString::default(), None)?];
        while let Some(level) = way.last_mut() {
            // A worker blocks SIGTERM, so it checks here whether it must end.
            if sys::is_termination_pending() {
                return Err(Errno::INTR);
            }
            let is_enough = !self.used.is_within(&self.enough);
            if let Some(name) = level.directories.pop().filter(|_| !is_enough) {
                match open_child(&at, &name) {
                    Ok((next, mode)) => {
                        way.push(self.level(&next, name, mode)?);
                        at = next;
                    }
                    Err(errno) => self.is_complete &= !may_hide_files(&at, &name, errno),
                }
                continue;
            }
            if let Some(mode) = level.mode {
                restore(&at, mode);
            }
            way.pop();
            if let Some(above) = way.last() {
                at = match rustix::fs::openat(&at, "..", DIR, Mode::empty()) {
                    Ok(up) if identity(&rustix::fs::fstat(&up)?) == above.identity => up,
                    // The directory was moved, and has another parent now.
                    _ => self.reopen_path(top, &mut way)?,
                };
            }
        }
        Ok(())
    }

    /// Counts the entries of a directory, and collects its subdirectories.
    fn level(&mut self, directory: &OwnedFd, name: CString, mode: Option<Mode>) -> Result<Level, Errno> {
        let mut directories = Vec::new();
        // `Dir::read_from` would open it again, which needs the permission to enter it.
        for entry in Dir::new(rustix::io::fcntl_dupfd_cloexec(directory, 0)?)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(errno) => {
                    self.is_complete &= !may_hide_files(directory, name, errno);
                    continue;
                }
            };
            if !self.devices.contains(&stat.st_dev) {
                if is_mount_point(directory, name) {
                    continue;
                }
                self.devices.insert(stat.st_dev);
            }
            self.add(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                directories.push(name.to_owned());
            }
            if !self.used.is_within(&self.enough) {
                break;
            }
        }
        Ok(Level { name, identity: identity(&rustix::fs::fstat(directory)?), mode, directories })
    }

    /// Walks down from the top again, as long as the path leads to the same directories. The rest of the path is dropped:
    /// a moved directory was counted at its new place or not.
    fn reopen_path(&mut self, top: &OwnedFd, way: &mut Vec<Level>) -> Result<OwnedFd, Errno> {
        let mut at = rustix::fs::openat(top, ".", DIR, Mode::empty())?;
        let mut reached = 1;
        while let Some(level) = way.get(reached) {
            match open_child(&at, &level.name) {
                Ok((next, _)) if identity(&rustix::fs::fstat(&next)?) == level.identity => at = next,
                Ok(_) => break,
                Err(errno) => {
                    self.is_complete &= !may_hide_files(&at, &level.name, errno);
                    break;
                }
            }
            reached += 1;
        }
        way.truncate(reached);
        Ok(at)
    }
}

/// Counts deleted files through the processes that hold them.
struct OpenFileCounter<'a> {
    count: &'a mut UsageCounter,
    top: &'a OwnedFd,
    /// The mounts of the machine. They are read when a device is unknown.
    mounts: OnceCell<Mounts>,
    /// The directory's path, with a slash at its end.
    path: String,
    /// The sockets that were inspected.
    sockets: HashSet<Vec<u8>>,
}

impl OpenFileCounter<'_> {
    /// Counts the deleted files that a process holds on the directory's file system. Returns whether all were
    /// visible.
    fn add(&mut self, pid: Pid) -> bool {
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        let (mut is_complete, mut is_memory_known) = (true, false);
        // All threads share their memory, but each may have its own descriptors and working directory.
        for thread in process_tree::threads_of(pid) {
            let directory = format!("{process}/task/{}", thread.as_raw_nonzero());
            let is_known = self.add_thread(&directory).unwrap_or(false)
                && (is_memory_known || self.are_mappings_known(&directory));
            // The first thread may have exited before the others.
            if process_tree::is_alive(pid, thread) {
                is_complete &= is_known;
                is_memory_known = true;
            }
        }
        is_complete
    }

    /// Counts the files that a thread has open, executes, or has as its working directory.
    fn add_thread(&mut self, thread: &str) -> Result<bool, Errno> {
        let dir = rustix::fs::open(thread, DIR, Mode::empty())?;
        let mut is_complete = true;
        for name in [c"exe", c"cwd", c"root"] {
            is_complete &= self.add_removed(&dir, name).is_ok();
        }
        let directory = rustix::fs::openat(&dir, "fd", DIR, Mode::empty())?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let link = self.add_removed(&directory, name);
            is_complete &= link.is_ok();
            let is_new_socket = link.ok().flatten().is_some_and(|link| {
                link.as_bytes().starts_with(SOCKET) && self.sockets.insert(link.into_bytes())
            });
            if is_new_socket {
                let number = name.to_string_lossy();
                is_complete &= !has_descriptors_under_way(&format!("{thread}/fdinfo/{number}"));
            }
        }
        Ok(is_complete)
    }

    /// Counts the target of a link in `/proc` if it is deleted. Otherwise returns the link's text. Fails when the target
    /// cannot be inspected.
    fn add_removed(&mut self, directory: &OwnedFd, name: &CStr) -> Result<Option<CString>, Errno> {
        // Only deleted files are inspected: inspecting others may block. A link that is too long cannot be read.
        if let Ok(link) = rustix::fs::readlinkat(directory, name, Vec::new())
            && !link.as_bytes().ends_with(DELETED)
        {
            return Ok(Some(link));
        }
        match rustix::fs::statat(directory, name, AtFlags::empty()) {
            Ok(stat) if stat.st_nlink == 0 => {
                if self.count.devices.contains(&stat.st_dev) || self.mounts().contain(directory, name) {
                    self.count.devices.insert(stat.st_dev);
                    self.count.add(&stat);
                }
            }
            // It was closed meanwhile.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(None)
    }

    fn mounts(&self) -> &Mounts {
        self.mounts.get_or_init(|| Mounts::of(self.top))
    }

    /// Whether all deleted files that a process has mapped were counted elsewhere. Their size is not visible here.
    fn are_mappings_known(&self, thread: &str) -> bool {
        let Ok(maps) = std::fs::read(format!("{thread}/maps")) else { return false };
        maps.split(|byte| *byte == b'\n').filter(|line| line.ends_with(DELETED)).all(|line| {
            // Addresses, permissions, offset, device, inode, path.
            let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
            let device = fields.nth(3).and_then(|device| parse_device(device, 16));
            let inode = fields.next().and_then(|inode| std::str::from_utf8(inode).ok()?.parse().ok());
            let is_here = fields.next().is_some_and(|path| {
                path.starts_with(self.path.as_bytes())
                    || device.is_some_and(|device| self.mounts().may_have_mapped(path, device))
            });
            !is_here || inode.is_some_and(|inode| self.count.has_counted(inode))
        })
    }
}

/// Whether a socket received descriptors that no process has taken yet.
fn has_descriptors_under_way(info: &str) -> bool {
    // It was closed meanwhile. The next measurement inspects it.
    let Ok(info) = std::fs::read_to_string(info) else { return false };
    info.lines().any(|line| line.strip_prefix("scm_fds:").is_some_and(|count| count.trim() != "0"))
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens a subdirectory, through no link and into no mount. If its owner removed the read permission, it is restored
/// during the measurement, since such a directory can still be filled. Then the former permissions are returned, too.
fn open_child(directory: &OwnedFd, name: &CStr) -> Result<(OwnedFd, Option<Mode>), Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |flags| rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve);
    let found = open(DIR);
    let needed = Mode::RUSR | Mode::XUSR;
    if let Ok(next) = &found
        && Mode::from_raw_mode(rustix::fs::fstat(next)?.st_mode).contains(needed)
    {
        return found.map(|next| (next, None));
    }
    let dir = open(OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    let stat = rustix::fs::fstat(&dir)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return found.map(|next| (next, None));
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    restore(&dir, mode | needed);
    match open(DIR) {
        Ok(next) => Ok((next, Some(mode))),
        Err(errno) => {
            restore(&dir, mode);
            Err(errno)
        }
    }
}

/// Whether an entry of a directory that could not be read may hide files. `errno` is the failure.
fn may_hide_files(directory: &OwnedFd, name: &CStr, errno: Errno) -> bool {
    // A mount point whose file system does not answer is still one.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV);
    if matches!(opened, Err(Errno::XDEV)) {
        return false;
    }
    match errno {
        // It was removed or replaced meanwhile, or is a mount point. Kernels before 5.6 cannot open it.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NOSYS => false,
        // Programs have the guest's user. They cannot fill a directory of another user that they cannot enter. They may
        // have changed the permissions of their own during the measurement.
        Errno::ACCESS => {
            let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                // It is the directory above that cannot be entered.
                Err(Errno::ACCESS) => rustix::fs::fstat(directory),
                found => found,
            };
            let is_own = stat.is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
            is_own || rustix::fs::accessat(directory, name, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
        }
        _ => true,
    }
}

/// Sets the permissions of a directory by its handle, if possible.
fn restore(directory: &OwnedFd, mode: Mode) {
    let _ = rustix::fs::chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode);
}

#[cfg(test)]
mod tests;
