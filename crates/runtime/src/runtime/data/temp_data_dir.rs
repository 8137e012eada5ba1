//! A temporary data directory, for a runtime without a configured one. It is removed when its runtime ends. After a crash,
//! the next runtime that creates such a directory removes it.
//!
//! State: `conjure-…` in the machine's temporary directory. It has a file `data-dir.lock` that is locked while the runtime
//! lives. Earlier versions named it `home.lock`. Private directories of sandboxes without isolation are marked and removed
//! in the same way.
//!
//! A directory without such a file, or of another user, is not touched. The kept files of a session are not touched
//! either.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_fs::{FileLock, TEMPORARY_DIR_LOCK};
use conjure_sandbox::{dir_id, remove_tree};
use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;

use crate::runtime::error::RuntimeError;

const PREFIX: &str = "conjure-";
/// The name of the lock in directories of earlier versions.
const FORMER_LOCK: &str = "home.lock";

/// The files that mark a kept workspace: the current name, and that of earlier versions.
const KEPT_MARKERS: [&str; 2] = ["keep", "kept"];

/// A temporary directory. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TempDataDir {
    path: PathBuf,
    /// `None` after the drop.
    dir: Option<TempDir>,
    is_kept: AtomicBool,
    _lock: FileLock,
}

impl TempDataDir {
    /// Creates a directory in `around`. Also removes the directories that dead runtimes of this user left there. Blocks.
    pub(crate) fn create(around: &Path) -> Result<Self, RuntimeError> {
        let unusable = |error: io::Error| RuntimeError::data(around, &error);
        // The mode is 0700.
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(around).map_err(unusable)?;
        let path = dir.path().canonicalize().map_err(unusable)?;
        let made = || -> io::Result<(FileLock, u32)> {
            Ok((FileLock::mark_temporary_dir(&path)?, fs::metadata(&path)?.uid()))
        };
        let (lock, owner) = made().map_err(unusable)?;
        sweep(around, owner);
        Ok(Self { path, dir: Some(dir), is_kept: AtomicBool::new(false), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory stay when this is dropped.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }
}

impl Drop for TempDataDir {
    fn drop(&mut self) {
        let Some(dir) = self.dir.take() else { return };
        // Commands may have set modes that only our own removal can handle.
        let path = dir.keep();
        let removed =
            if self.is_kept.load(Ordering::Acquire) { remove_all_but_kept(&path) } else { remove(&path) };
        if let Err(error) = removed {
            tracing::warn!(path = %path.display(), %error, "a temporary directory was not removed");
        }
    }
}

/// Removes the directories that dead processes of this user left in `around`. Blocks.
pub(crate) fn sweep(around: &Path, owner: u32) {
    for entry in fs::read_dir(around).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let is_ours = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == owner);
        let locks = [TEMPORARY_DIR_LOCK, FORMER_LOCK].map(|name| path.join(name));
        let Some(_lock) = locks.iter().filter(|_| is_ours).find_map(|lock| abandoned(lock)) else { continue };
        let removed = match has_kept(&path) {
            true => remove_all_but_kept(&path),
            false => remove(&path),
        };
        match removed {
            Ok(()) => {
                tracing::info!(path = %path.display(), "removed the temporary directory of a dead process")
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the temporary directory of a dead process was not removed");
            }
        }
    }
}

/// Locks a runtime's lock file, if the runtime is dead.
fn abandoned(path: &Path) -> Option<FileLock> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    FileLock::try_exclusive(file).ok().flatten()
}

fn remove(path: &Path) -> Result<(), RuntimeError> {
    let removed = dir_id(path).and_then(|id| remove_tree(path, id));
    removed.map_err(|error| RuntimeError::data(path, &error))
}

/// Whether the directory has a kept workspace.
fn has_kept(path: &Path) -> bool {
    entries(&path.join("tenants"))
        .any(|tenant| entries(&tenant.join("workspaces")).any(|workspace| is_kept(&workspace)))
}

fn is_kept(workspace: &Path) -> bool {
    KEPT_MARKERS.iter().any(|name| workspace.join(name).exists())
}

/// Removes everything except the kept workspaces. The directory has no lock file then, and is an ordinary one.
fn remove_all_but_kept(path: &Path) -> Result<(), RuntimeError> {
    let tenants = path.join("tenants");
    for tenant in entries(&tenants) {
        let workspaces = tenant.join("workspaces");
        for inner in entries(&tenant).filter(|inner| *inner != workspaces) {
            clear(&inner)?;
        }
        for workspace in entries(&workspaces).filter(|workspace| !is_kept(workspace)) {
            clear(&workspace)?;
        }
    }
    for inner in entries(path).filter(|inner| *inner != tenants) {
        clear(&inner)?;
    }
    Ok(())
}

fn clear(path: &Path) -> Result<(), RuntimeError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return remove(path);
    }
    fs::remove_file(path).map_err(|error| RuntimeError::data(path, &error))
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests;
