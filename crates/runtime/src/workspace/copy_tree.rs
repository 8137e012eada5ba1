//! Copies a directory for a fork of its session. Commands may change the directory meanwhile.
//!
//! - Each step opens a name in an already open directory, and follows no link.
//! - The number of entries and the depth are bounded, and so is the number of open directories.
//! - Symbolic links, hard links and holes are kept.
//! - If the file system supports it, files share their blocks until one of them changes.
//! - Sockets, pipes and devices are left out.
//!
//! State: the copy. It is incomplete after an error, and the caller must remove it.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, fstat, openat,
};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

/// The bounds of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyBounds {
    /// The most files, directories and links.
    pub(crate) entries: usize,
    /// The deepest nesting. Each level keeps three files open.
    pub(crate) depth: usize,
}

impl Default for CopyBounds {
    fn default() -> Self {
        Self { entries: 1_000_000, depth: 64 }
    }
}

/// The entry that stopped the copy, and the reason.
#[derive(Debug)]
pub(crate) struct CopyError {
    /// The entry, relative to the directory; empty for the directory itself.
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const CREATE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The bytes that are copied at a time.
const CHUNK: usize = 256 << 10;

/// Copies the contents of `from` to the empty directory `to`, which no other task may use. Returns an error soon after
/// `cancel`. Blocks.
pub(crate) fn copy_tree(
    from: OwnedFd,
    to: OwnedFd,
    bounds: CopyBounds,
    cancel: &CancellationToken,
) -> Result<(), CopyError> {
    let top = Path::new("");
    let root = to.try_clone().map_err(|error| failure(top, error))?;
    let mut copy = TreeCopy { root, bounds, entries: 0, linked: HashMap::new(), cancel };
    let mut open = vec![OpenDir::new(from, to, PathBuf::new()).map_err(|errno| failure(top, errno))?];
    while let Some(dir) = open.last_mut() {
        let entry = match dir.names.next() {
            Some(Ok(entry)) => entry,
            Some(Err(errno)) => return Err(failure(&dir.path, errno)),
            None => {
                dir.finish().map_err(|errno| failure(&dir.path, errno))?;
                open.pop();
                continue;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let path = dir.path.join(OsStr::from_bytes(name.to_bytes()));
        copy.count(&path)?;
        if let Some(below) = copy.entry(dir, name, &path).map_err(|error| failure(&path, error))? {
            if open.len() > bounds.depth {
                let reason = format!("its directories are more than {} deep", bounds.depth);
                return Err(CopyError { path, reason });
            }
            open.push(below);
        }
    }
    Ok(())
}

/// A directory that is being copied.
struct OpenDir {
    from: OwnedFd,
    to: OwnedFd,
    names: Dir,
    path: PathBuf,
}

impl OpenDir {
    fn new(from: OwnedFd, to: OwnedFd, path: PathBuf) -> Result<Self, Errno> {
        let names = Dir::read_from(&from)?;
        Ok(Self { from, to, names, path })
    }

    /// Sets owner, mode and dates, because copying the entries changes them.
    fn finish(&self) -> Result<(), Errno> {
        copy_attributes(self.to.as_fd(), &fstat(&self.from)?)
    }
}

fn failure(path: &Path, error: impl Into<io::Error>) -> CopyError {
    CopyError { path: path.to_owned(), reason: error.into().to_string() }
}

fn cancelled() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the copy was interrupted")
}

struct TreeCopy<'c> {
    root: OwnedFd,
    bounds: CopyBounds,
    entries: usize,
    /// The copies of files that have several hard links, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    cancel: &'c CancellationToken,
}

impl TreeCopy<'_> {
    fn count(&mut self, path: &Path) -> Result<(), CopyError> {
        self.entries += 1;
        if self.entries > self.bounds.entries {
            let reason = format!("it has more than {} files, directories and links", self.bounds.entries);
            return Err(CopyError { path: PathBuf::new(), reason });
        }
        if self.cancel.is_cancelled() { Err(failure(path, cancelled())) } else { Ok(()) }
    }

    /// Copies one entry. If it is a directory, returns it, so that its entries can be copied. An entry that is removed or
    /// replaced meanwhile is left out.
    fn entry(&mut self, dir: &OpenDir, name: &CStr, path: &Path) -> io::Result<Option<OpenDir>> {
        let OpenDir { from, to, .. } = dir;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match rustix::fs::statat(from, name, flags) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let opened = match openat(from, name, DIR, Mode::empty()) {
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    opened => opened?,
                };
                rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                let made = openat(to, name, DIR, Mode::empty())?;
                return Ok(Some(OpenDir::new(opened, made, path.to_owned())?));
            }
            FileType::Symlink => match rustix::fs::readlinkat(from, name, Vec::new()) {
                Err(Errno::NOENT | Errno::INVAL) => {}
                target => rustix::fs::symlinkat(&target?, to, name)?,
            },
            FileType::RegularFile => {
                let opened = match openat(from, name, READ, Mode::empty()) {
                    Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
                    opened => opened?,
                };
                self.file(&File::from(opened), to, name, path)?;
            }
            other => {
                tracing::debug!(path = %path.display(), kind = ?other, "an entry was left out of the copy of a workspace");
            }
        }
        Ok(None)
    }

    fn file(&mut self, from: &File, to: &OwnedFd, name: &CStr, path: &Path) -> io::Result<()> {
        let stat = fstat(from)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let id = (stat.st_dev, stat.st_ino);
        if stat.st_nlink > 1
            && let Some(known) = self.linked.get(&id)
        {
            rustix::fs::linkat(&self.root, known, to, name, AtFlags::empty())?;
            return Ok(());
        }
        let made = File::from(openat(to, name, CREATE, Mode::RUSR | Mode::WUSR)?);
        if rustix::fs::ioctl_ficlone(&made, from).is_err() {
            self.copy_content(from, &made, u64::try_from(stat.st_size).unwrap_or(0))?;
        }
        copy_attributes(made.as_fd(), &stat)?;
        if stat.st_nlink > 1 {
            self.linked.insert(id, path.to_owned());
        }
        Ok(())
    }

    /// Copies the data of a file of this size. Holes stay holes.
    fn copy_content(&self, from: &File, to: &File, size: u64) -> io::Result<()> {
        to.set_len(size)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < size {
            at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
                Ok(data) => data,
                // There is no data after this position.
                Err(Errno::NXIO) => break,
                // This file system does not report holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                Err(errno) => return Err(errno.into()),
            };
            let hole = rustix::fs::seek(from, SeekFrom::Hole(at)).unwrap_or(size).min(size);
            while at < hole {
                if self.cancel.is_cancelled() {
                    return Err(cancelled());
                }
                let wanted = usize::try_from(hole - at).unwrap_or(CHUNK).min(CHUNK);
                let count = from.read_at(&mut buffer[..wanted], at)?;
                if count == 0 {
                    // The file was truncated meanwhile.
                    return Ok(());
                }
                to.write_all_at(&buffer[..count], at)?;
                at += count as u64;
            }
        }
        Ok(())
    }
}

/// Copies owner, mode and dates of a file. Only a process with the permission to change owners keeps foreign owners. The
/// bits for set-user-ID, set-group-ID and sticky are left out.
fn copy_attributes(to: BorrowedFd<'_>, stat: &Stat) -> Result<(), Errno> {
    let own = fstat(to)?;
    if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        match rustix::fs::fchown(to, Some(uid), Some(gid)) {
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    let date = |tv_sec, nanoseconds: u64| Timespec {
        tv_sec,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    };
    let times = Timestamps {
        last_access: date(stat.st_atime, stat.st_atime_nsec),
        last_modification: date(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::futimens(to, &times)
}

#[cfg(test)]
mod tests;
