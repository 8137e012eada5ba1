//! [`TreeRemoval`]: removes a directory and everything beneath it, whatever commands of a sandbox created there.
//!
//! No step uses a path. Every step goes from an open directory to a name in it, follows no link and enters no mount.
//! If a directory lacks permissions, they are added through its handle. Two handles suffice, however deep directories
//! are nested: a nested directory is first moved up into the top directory.
//!
//! State: none. If a crash interrupts a removal, the next attempt removes the rest.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use conjure_base::FileId;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::stat::file_id;

/// How many names are read before their entries are removed.
const BATCH: usize = 4096;

/// The maximum number of passes over the top directory. Each pass removes at least one level, and a workspace's quota
/// limits the number of levels.
const PASSES: u32 = 1 << 20;

/// How often a removal is restarted when new entries appear in the empty top directory. This happens when two
/// processes remove the same directory.
const MAX_RESTARTS: u32 = 16;

/// How many names are tried for a directory that is moved up.
const ATTEMPTS: u32 = 1 << 20;

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why an entry was not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveError {
    /// The name of the entry that cannot be removed; empty for the directory itself.
    name: OsString,
    /// `None` when another directory has the name now.
    errno: Option<Errno>,
}

impl RemoveError {
    /// The error for this name.
    #[must_use]
    pub fn new(name: &OsStr, errno: Errno) -> Self {
        Self { name: name.to_owned(), errno: Some(errno) }
    }

    /// The system's error; `None` when another directory has the name now.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        self.errno
    }
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.display();
        let reason = match self.errno {
            None => return write!(f, "`{name}` is another directory now, and is left alone"),
            Some(Errno::ACCESS | Errno::PERM) => {
                "it belongs to another user, or is marked as immutable; remove it as root".to_owned()
            }
            Some(Errno::XDEV | Errno::BUSY) => {
                "a file system is mounted there, or it is being written; unmount it".to_owned()
            }
            Some(Errno::NOTDIR | Errno::LOOP) => "it is not a directory".to_owned(),
            Some(Errno::NOENT) => "it does not exist".to_owned(),
            Some(Errno::ROFS) => "its file system is read-only".to_owned(),
            Some(other) => other.to_string(),
        };
        write!(f, "`{name}` cannot be removed: {reason}")
    }
}

impl std::error::Error for RemoveError {}

/// The removal of a directory with everything in it.
///
/// No link is followed, neither at the end of the path nor beneath it. No mount is entered. Entries that cannot be
/// removed stay, with the directories that contain them; everything else is removed. A directory that does not exist
/// is no error.
#[derive(Debug, Clone, Copy)]
pub struct TreeRemoval {
    id: Option<FileId>,
    prepare: fn(BorrowedFd<'_>),
}

impl TreeRemoval {
    /// Removes only the directory with this identity, and not another one that has its name by now. Without an
    /// identity, it removes any directory of that name.
    #[must_use]
    pub const fn new(id: Option<FileId>) -> Self {
        Self { id, prepare: |_| () }
    }

    /// Sets a function that is called with the open directory before its content is removed.
    #[must_use]
    pub const fn with_prepare(self, prepare: fn(BorrowedFd<'_>)) -> Self {
        Self { prepare, ..self }
    }

    /// Removes the directory at `path`. Blocks.
    ///
    /// # Errors
    /// When another directory or another kind of file is at `path` now; then nothing is removed. When entries in it
    /// cannot be removed: the error of the first one.
    pub fn remove_path(self, path: &Path) -> Result<(), RemoveError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(RemoveError::new(path.as_os_str(), Errno::INVAL));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, parent, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(RemoveError::new(parent.as_os_str(), errno)),
            Ok(parent) => self.remove(parent.as_fd(), name),
        }
    }

    /// Removes the directory of this name in an open directory. Blocks.
    ///
    /// # Errors
    /// As [`TreeRemoval::remove_path`].
    pub fn remove(self, parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), RemoveError> {
        let failed = |errno| RemoveError::new(name, errno);
        let c_name = CString::new(name.as_bytes()).map_err(|_| failed(Errno::INVAL))?;
        let top = match open(parent, &c_name) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(failed)?,
        };
        if self.id.is_some_and(|id| file_id(&top).ok() != Some(id)) {
            return Err(RemoveError { name: name.to_owned(), errno: None });
        }
        (self.prepare)(top.as_fd());
        let mut removal = TreeRemover { top, next: 0, steps: 0, first_failure: None };
        for _ in 0..MAX_RESTARTS {
            removal.empty();
            if let Some((name, errno)) = removal.first_failure {
                return Err(RemoveError::new(OsStr::from_bytes(name.to_bytes()), errno));
            }
            match rustix::fs::unlinkat(parent, &*c_name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            // Another process has removed it, and created a new directory of the same name.
            if !has_name(&removal.top, parent, &c_name) {
                return Ok(());
            }
        }
        Err(failed(Errno::BUSY))
    }
}

/// Whether an open file or directory has this name in an open directory.
#[must_use]
pub fn has_name(open: impl AsFd, parent: impl AsFd, name: &CStr) -> bool {
    let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((there, rustix::fs::fstat(open)), (Ok(there), Ok(open))
        if (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino))
}

/// Opens a directory for listing, beneath its parent, through no link and into no mount. Adds permissions if they are
/// missing.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |flags| {
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    };
    let dir = open(OFlags::PATH)?;
    make_accessible(&dir)?;
    open(OFlags::RDONLY)
}

/// Lets the owner list and change a directory that is open with `O_PATH` only.
fn make_accessible(dir: &OwnedFd) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(dir)?;
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
        return Ok(());
    }
    // By its handle: another directory may have the name by now.
    match rustix::fs::chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), Mode::RWXU) {
        // It belongs to another user. This process may still have access.
        Err(Errno::PERM) => Ok(()),
        other => other,
    }
}

struct TreeRemover {
    top: OwnedFd,
    /// The number in the next name for a directory that is moved up.
    next: u32,
    /// How many entries were removed or moved so far.
    steps: u64,
    /// The first entry that could not be removed.
    first_failure: Option<(CString, Errno)>,
}

impl TreeRemover {
    /// Removes everything in the top directory, as far as possible.
    fn empty(&mut self) {
        for _ in 0..PASSES {
            // An entry that could not be removed in this pass may be removable in the next one. So each pass starts
            // without failures, as long as the previous one removed or moved something.
            self.first_failure = None;
            match self.remove_batch() {
                Ok(true) => {}
                // Another process has removed the top directory itself.
                Ok(false) | Err(Errno::NOENT) => return,
                Err(errno) => {
                    self.first_failure.get_or_insert((CString::default(), errno));
                    return;
                }
            }
        }
        self.first_failure = Some((CString::default(), Errno::BUSY));
    }

    /// Goes through the names in the top directory once. Returns whether it removed or moved an entry.
    fn remove_batch(&mut self) -> Result<bool, Errno> {
        let before = self.steps;
        let mut names = Dir::read_from(&self.top)?;
        loop {
            let batch = read_batch(&mut names)?;
            let is_last = batch.len() < BATCH;
            for (name, kind) in batch {
                let done = if kind == FileType::Directory {
                    self.dir(&name)
                } else {
                    match rustix::fs::unlinkat(&self.top, &*name, AtFlags::empty()) {
                        // The file system did not report the kind of the entry.
                        Err(Errno::ISDIR) => self.dir(&name),
                        other => other,
                    }
                };
                self.record_failure(name, done);
            }
            if is_last {
                return Ok(self.steps > before);
            }
        }
    }

    fn record_failure(&mut self, name: CString, done: Result<(), Errno>) {
        match done {
            Ok(()) => self.steps += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => {
                self.first_failure.get_or_insert((name, errno));
            }
        }
    }

    /// Removes a directory of the top directory. Nested directories that are not empty are moved up first.
    fn dir(&mut self, name: &CStr) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            other => return other,
        }
        let dir = open(self.top.as_fd(), name)?;
        let mut names = Dir::read_from(&dir)?;
        loop {
            let batch = read_batch(&mut names)?;
            let is_last = batch.len() < BATCH;
            for (name, kind) in batch {
                let mut done = match kind {
                    FileType::Directory => Err(Errno::ISDIR),
                    _ => rustix::fs::unlinkat(&dir, &*name, AtFlags::empty()),
                };
                if done == Err(Errno::ISDIR) {
                    done = rustix::fs::unlinkat(&dir, &*name, AtFlags::REMOVEDIR);
                }
                if matches!(done, Err(Errno::NOTEMPTY | Errno::EXIST)) {
                    done = self.flatten(&dir, &name);
                }
                self.record_failure(name, done);
            }
            if is_last {
                break;
            }
        }
        match rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            // The failures of the entries in it were recorded.
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.first_failure.is_some() => Err(Errno::NOTEMPTY),
            other => other,
        }
    }

    /// Moves a nested directory up into the top directory.
    fn flatten(&mut self, from: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        // The move changes its own `..` entry, so it must be writable.
        let dir = rustix::fs::openat(from, name, PATH | OFlags::DIRECTORY, Mode::empty())?;
        make_accessible(&dir)?;
        for _ in 0..ATTEMPTS {
            self.next = self.next.wrapping_add(1);
            let up = format!(".conjure-removing-{}", self.next);
            match rustix::fs::renameat(from, name, &self.top, up.as_str()) {
                // The name is taken, by chance or by an attack. Try the next one.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                other => return other,
            }
        }
        Err(Errno::EXIST)
    }
}

/// Reads the next names of a directory, with their kinds where the file system reports them.
fn read_batch(names: &mut Dir) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut batch = Vec::new();
    while batch.len() < BATCH {
        let Some(entry) = names.read() else { break };
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            batch.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(batch)
}
