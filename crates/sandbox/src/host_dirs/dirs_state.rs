//! [`DirsState`]: locks and removes single sandbox directories. [`super::SandboxDirs`] describes their layout.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_fs::{FileLock, file_id, has_name, rename_dir_new};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::remove_tree::remove_beneath;
use crate::error::{SandboxError, SandboxErrorKind};

/// How many names are tried for a new directory.
pub(super) const ATTEMPTS: u32 = 10_000;

/// The prefix of directories that are being removed.
pub(super) const DEAD: &str = "dead-";

pub(super) const LOCK: &CStr = c"lock";

/// The file that marks a directory as kept.
pub(super) const KEEP: &CStr = c"keep";

/// The name that earlier versions gave to [`KEEP`].
pub(super) const FORMER_KEEP: &CStr = c"kept";

pub(super) const DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that contains the sandbox directories.
#[derive(Debug)]
pub(super) struct DirsState {
    pub(super) path: PathBuf,
    pub(super) dir: OwnedFd,
    pub(super) next: AtomicU64,
}

/// What a sweep did with one directory.
pub(super) enum SweepOutcome {
    Removed,
    Alive,
    Kept,
    /// It is not a sandbox directory, or another process removed it.
    None,
}

/// The result of locking a directory.
pub(super) enum LockOutcome {
    /// It was free: the directory and the held lock.
    Locked(OwnedFd, FileLock),
    /// A living process has locked it.
    Alive,
    /// It does not exist any more.
    Missing,
}

impl DirsState {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks a directory, unless another process has locked it. `flags` tells whether a missing lock file is created.
    pub(super) fn lock_dir(&self, name: &str, flags: OFlags) -> Result<LockOutcome, Errno> {
        let dir = match rustix::fs::openat(&self.dir, name, DIR, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(LockOutcome::Missing),
            other => other?,
        };
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = match rustix::fs::openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(LockOutcome::Missing),
            other => other?,
        };
        let Some(lock) = FileLock::try_exclusive(lock)? else { return Ok(LockOutcome::Alive) };
        // Another process may have removed the directory before this lock was taken. A third process may then have
        // created a new one of the same name.
        let c_name = CString::new(name).map_err(|_| Errno::INVAL)?;
        if has_name(&dir, &self.dir, &c_name) && has_name(&lock, &dir, LOCK) {
            Ok(LockOutcome::Locked(dir, lock))
        } else {
            Ok(LockOutcome::Missing)
        }
    }

    /// Removes a directory whose process is dead.
    pub(super) fn sweep(&self, name: &str) -> Result<SweepOutcome, SandboxError> {
        let failed = |errno| unavailable("lock", &self.path.join(name), errno);
        // A process that died between creating the directory and the lock has left nothing else in it.
        if rustix::fs::unlinkat(&self.dir, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(SweepOutcome::Removed);
        }
        match self.lock_dir(name, OFlags::empty()).map_err(failed)? {
            LockOutcome::Locked(dir, _) if is_kept(&dir) => Ok(SweepOutcome::Kept),
            LockOutcome::Locked(dir, lock) => {
                self.remove_locked(name, &dir, lock).map(|()| SweepOutcome::Removed)
            }
            LockOutcome::Alive => Ok(SweepOutcome::Alive),
            LockOutcome::Missing => Ok(SweepOutcome::None),
        }
    }

    /// Removes a directory whose lock is held.
    pub(super) fn remove_locked(
        &self,
        name: &str,
        dir: &OwnedFd,
        lock: FileLock,
    ) -> Result<(), SandboxError> {
        let path = self.path.join(name);
        let failed = |errno| unavailable("remove", &path, errno);
        let id = file_id(dir).map_err(failed)?;
        for _ in 0..ATTEMPTS {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let dead = format!("{DEAD}{}-{number}", std::process::id());
            match rename_dir_new(&self.dir, name, &self.dir, dead.as_str()) {
                Ok(()) => {
                    let removed = remove_beneath(self.dir.as_fd(), dead.as_ref(), Some(id));
                    drop(lock);
                    return removed;
                }
                Err(Errno::NOENT) => return Ok(()),
                // A process with the same id left a directory of that name. Try the next name.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EXIST))
    }
}

/// Whether `name` has the form of a sandbox directory: a process id and a number.
pub(super) fn is_sandbox_dir_name(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-').is_some_and(|(process, number)| is_number(process) && is_number(number))
}

fn is_kept(dir: &OwnedFd) -> bool {
    [KEEP, FORMER_KEEP].iter().any(|name| rustix::fs::statat(dir, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

/// Marks a directory as kept.
pub(super) fn keep(dir: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, KEEP, flags, Mode::RUSR | Mode::WUSR).map(drop)
}

/// The error for a directory that cannot be used.
pub(super) fn unavailable(doing: &str, path: &Path, error: impl Into<std::io::Error>) -> SandboxError {
    let error = error.into();
    let kind = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => SandboxErrorKind::NoSpace,
        _ => SandboxErrorKind::Unavailable,
    };
    let path = path.display();
    SandboxError::new(kind, format!("a sandbox's directory is unusable: failed to {doing} `{path}`: {error}"))
}
