//! [`SandboxDirs`]: the directory of all sandbox directories, with their locks, and the sweep of those whose process is
//! dead.
//!
//! State: `<data>/sandboxes/<name>`, one directory for each sandbox, with a file `lock` that is locked while the
//! owning process lives. After a crash the kernel has released the lock, and [`SandboxDirs::sweep`] removes the
//! directory. Before a directory is removed, it is renamed to `dead-…` while its lock is held. So it cannot happen
//! that one process uses a directory while another removes it. Entries with other names, and entries without a lock,
//! belong to other programs and stay.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStringExt as _;
#[cfg(feature = "docker")]
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "docker")]
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "docker")]
use std::time::UNIX_EPOCH;

use conjure_fs::ensure_dir;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::dirs_state::{
    ATTEMPTS, DEAD, DIR, DirsState, LOCK, LockOutcome, SweepOutcome, is_sandbox_dir_name, unavailable,
};
use super::remove_tree::remove_beneath;
use super::sandbox_dir::{DirPurpose, SandboxDir};
use crate::error::SandboxError;

/// The sandbox directories of this process or of one tenant. Clones share them.
#[derive(Debug, Clone)]
pub struct SandboxDirs {
    inner: Arc<DirsState>,
}

/// A weak reference to [`SandboxDirs`], which does not keep the directory open.
#[cfg(feature = "docker")]
#[derive(Debug, Clone)]
pub(crate) struct SandboxDirsRef {
    identity: String,
    inner: Weak<DirsState>,
}

#[cfg(feature = "docker")]
impl SandboxDirsRef {
    /// Whether it refers to the directory of this identity.
    pub(crate) fn has_identity(&self, identity: &str) -> bool {
        self.identity == identity
    }

    /// Whether both refer to the same directory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.has_identity(&other.identity)
    }

    /// Whether the directories were dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.inner.strong_count() == 0
    }

    /// Whether the process that locked this sandbox directory is dead, or the directory was removed; `None` when that
    /// is unknown.
    pub(crate) fn is_abandoned(&self, name: &str) -> Option<bool> {
        let inner = self.inner.upgrade().filter(|_| is_sandbox_dir_name(name))?;
        match inner.lock_dir(name, OFlags::empty()) {
            Ok(LockOutcome::Alive) => Some(false),
            // This holds the lock only for a moment, and the directory is unchanged.
            Ok(LockOutcome::Locked(..) | LockOutcome::Missing) => Some(true),
            Err(_) => None,
        }
    }
}

/// What [`SandboxDirs::sweep`] did.
#[derive(Debug, Default)]
pub struct DirSweepReport {
    /// Directories of dead processes, which were removed.
    pub removed: usize,
    /// Directories of living processes, this one included.
    pub alive: usize,
    /// Directories that are kept although their process is dead.
    pub kept: usize,
    /// Why directories could not be removed.
    pub failures: Vec<SandboxError>,
}

impl SandboxDirs {
    /// Opens the sandbox directories in the data directory `data`. Creates missing directories, for their owner only.
    ///
    /// # Errors
    /// When a directory cannot be created or opened.
    pub fn open(data: &Path) -> Result<Self, SandboxError> {
        Self::open_dir(data.join("sandboxes"))
    }

    /// Opens the sandbox directories in this directory.
    pub(crate) fn open_dir(path: PathBuf) -> Result<Self, SandboxError> {
        ensure_dir(&path).map_err(|error| unavailable("make", &path, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &path, flags, Mode::empty())
            .map_err(|errno| unavailable("open", &path, errno))?;
        let path = std::fs::canonicalize(&path).map_err(|error| unavailable("open", &path, error))?;
        Ok(Self { inner: Arc::new(DirsState { path, dir: directory, next: AtomicU64::new(0) }) })
    }

    /// The directory that contains them.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Returns an id of the directory that is unique among all directories on this machine since its boot. Another
    /// container that sees the directory at another path gets the same id. `None` where the file system does not
    /// record creation times.
    #[cfg(feature = "docker")]
    pub(crate) fn identity(&self) -> Option<String> {
        let found = std::fs::metadata(&self.inner.path).ok()?;
        let made = found.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{:x}-{:x}-{:x}", found.dev(), found.ino(), made.as_nanos()))
    }

    /// A weak reference to the directories.
    #[cfg(feature = "docker")]
    pub(crate) fn downgrade(&self) -> Option<SandboxDirsRef> {
        Some(SandboxDirsRef { identity: self.identity()?, inner: Arc::downgrade(&self.inner) })
    }

    /// Creates a directory for a sandbox's content and output. It is removed when it is dropped.
    ///
    /// # Errors
    /// `NoSpace` and other errors of the system.
    pub fn create(&self) -> Result<SandboxDir, SandboxError> {
        self.create_for(DirPurpose::Sandbox)
    }

    /// Creates a directory that is removed when it is dropped.
    pub(crate) fn create_for(&self, purpose: DirPurpose) -> Result<SandboxDir, SandboxError> {
        let inner = &self.inner;
        for _ in 0..ATTEMPTS {
            let number = inner.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{number}", std::process::id());
            let path = inner.path.join(&name);
            match rustix::fs::mkdirat(&inner.dir, name.as_str(), Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(unavailable("make", &path, errno)),
            }
            // A sweep may have removed it meanwhile.
            let lock_dir = inner.lock_dir(&name, OFlags::CREATE).map_err(|errno| {
                // The disk may be full, so that the directory could be created but not its lock file. Remove the
                // directory.
                if let Ok(directory) = rustix::fs::openat(&inner.dir, name.as_str(), DIR, Mode::empty()) {
                    let _ = rustix::fs::unlinkat(directory, LOCK, AtFlags::empty());
                }
                let _ = rustix::fs::unlinkat(&inner.dir, name.as_str(), AtFlags::REMOVEDIR);
                unavailable("lock", &path, errno)
            });
            match lock_dir? {
                LockOutcome::Locked(directory, lock) => {
                    let dir = SandboxDir::new(Arc::clone(inner), name, directory, lock);
                    return dir.create_layout(purpose).map(|()| dir);
                }
                LockOutcome::Missing | LockOutcome::Alive => {}
            }
        }
        Err(unavailable("make", &inner.path, Errno::EXIST))
    }

    /// Removes the directories of dead processes. It keeps those of living processes, this one included, and entries
    /// that are not sandbox directories.
    ///
    /// # Errors
    /// When the directories cannot be listed. The report contains what cannot be removed.
    pub fn sweep(&self) -> Result<DirSweepReport, SandboxError> {
        let failed = |errno| unavailable("list", &self.inner.path, errno);
        let mut swept = DirSweepReport::default();
        for entry in Dir::read_from(&self.inner.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let name = OsString::from_vec(name.to_bytes().to_vec());
            let outcome = match name.to_str() {
                // An earlier removal was interrupted.
                Some(name) if name.strip_prefix(DEAD).is_some_and(is_sandbox_dir_name) => {
                    remove_beneath(self.inner.dir.as_fd(), name.as_ref(), None)
                        .map(|()| SweepOutcome::Removed)
                }
                Some(name) if is_sandbox_dir_name(name) => self.inner.sweep(name),
                _ => continue,
            };
            match outcome {
                Ok(SweepOutcome::Removed) => swept.removed += 1,
                Ok(SweepOutcome::Alive) => swept.alive += 1,
                Ok(SweepOutcome::Kept) => swept.kept += 1,
                Ok(SweepOutcome::None) => {}
                Err(error) => swept.failures.push(error),
            }
        }
        Ok(swept)
    }
}
