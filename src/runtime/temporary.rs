//! A temporary data folder, for a runtime that nobody named one: it goes with its runtime, and after a crash with the next one
//! that begins so.
//!
//! State: `conjure-…` in the machine's temporary folder, with a file `home.lock` that is locked as long as the runtime lives. What
//! has no such file, or belongs to another user, is somebody else's and stays; so does what a session's files were kept in.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_sandbox::{FolderId, remove_folder};
use rustix::fs::OFlags;
use tempfile::TempDir;

use super::error::RuntimeError;

const PREFIX: &str = "conjure-";
const LOCK: &str = "home.lock";

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    /// `None` once it was dropped.
    folder: Option<TempDir>,
    is_kept: AtomicBool,
    _lock: File,
}

impl Temporary {
    /// A new one in this folder; removes there what dead runtimes of this user left. Blocks.
    pub(crate) fn make(around: &Path) -> Result<Self, RuntimeError> {
        let unusable = |error: io::Error| RuntimeError::data(around, &error);
        // Its mode is 0700.
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(around).map_err(unusable)?;
        let path = folder.path().canonicalize().map_err(unusable)?;
        // It has its name when it is locked: who finds it unlocked finds it abandoned.
        let draft = path.join("home.new");
        let made = || -> io::Result<(File, u32)> {
            let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            lock.try_lock()?;
            fs::rename(&draft, path.join(LOCK))?;
            Ok((lock, fs::metadata(&path)?.uid()))
        };
        let (lock, owner) = made().map_err(unusable)?;
        sweep(around, owner);
        Ok(Self { path, folder: Some(folder), is_kept: AtomicBool::new(false), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets it stay for what is kept in it.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        // Commands may have made of it what only we remove.
        let path = folder.keep();
        let removed =
            if self.is_kept.load(Ordering::Acquire) { remove_all_but_kept(&path) } else { remove(&path) };
        if let Err(error) = removed {
            tracing::warn!(path = %path.display(), %error, "a temporary folder is left");
        }
    }
}

/// Removes those of dead runtimes.
fn sweep(around: &Path, owner: u32) {
    for entry in fs::read_dir(around).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let is_ours = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == owner);
        let Some(_lock) = is_ours.then(|| abandoned(&path.join(LOCK))).flatten() else { continue };
        let removed = match has_kept(&path) {
            true => remove_all_but_kept(&path),
            false => remove(&path),
        };
        match removed {
            Ok(()) => {
                tracing::info!(path = %path.display(), "removed the temporary folder of a dead runtime")
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the temporary folder of a dead runtime is left");
            }
        }
    }
}

/// The lock of a runtime that lives no more.
fn abandoned(path: &Path) -> Option<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let lock = OpenOptions::new().write(true).custom_flags(no_link).open(path).ok()?;
    lock.try_lock().is_ok().then_some(lock)
}

fn remove(path: &Path) -> Result<(), RuntimeError> {
    let removed = FolderId::of(path).and_then(|id| remove_folder(path, id));
    removed.map_err(|error| RuntimeError::data(path, &error))
}

/// Whether a session's files in it were kept.
fn has_kept(path: &Path) -> bool {
    entries(&path.join("tenants"))
        .any(|tenant| entries(&tenant.join("workspaces")).any(|workspace| workspace.join("kept").exists()))
}

/// Leaves the workspaces that were kept, and nothing else. It is a folder like any other then.
fn remove_all_but_kept(path: &Path) -> Result<(), RuntimeError> {
    let tenants = path.join("tenants");
    for tenant in entries(&tenants) {
        let workspaces = tenant.join("workspaces");
        for inner in entries(&tenant).filter(|inner| *inner != workspaces) {
            clear(&inner)?;
        }
        for workspace in entries(&workspaces).filter(|workspace| !workspace.join("kept").exists()) {
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

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
#[path = "temporary/tests.rs"]
mod tests;
