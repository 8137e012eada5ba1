//! [`DataDir`]: the directory with the content that sandboxes read, their own directories and the workspaces.
//!
//! ```text
//! <data>/store/       content by digest: skills as sandboxes got them
//! <data>/sandboxes/   a directory for each sandbox: its content and its cut output
//! <data>/workspaces/  a directory for each session's workspace; named ones stay until they are removed
//! <data>/last-gc      its modification time is that of the last garbage collection
//! ```
//!
//! State: these directories and files on the disk. After a crash, the next opening of the directory, by any process,
//! removes the directories of the dead process's sandboxes and sessions. A workspace that was kept stays. The store
//! contains nothing that cannot be inserted again.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use conjure_base::{Clock as _, Digest, SystemClock, Timestamp};
use conjure_fs::ensure_dir;
use conjure_store::{Durability, GcReport, Store, StoreError, StoreOptions, Tree, TreeOptions};
use tempfile::TempDir;

use crate::error::{SandboxError, SandboxErrorKind};
use crate::host_dirs::remove_tree;
use crate::host_dirs::{DirPurpose, SandboxDir, SandboxDirs, dir_id, kind_of};
#[cfg(feature = "jail")]
use crate::host_dirs::{finish_swap, remount};

/// How long content must be unused before garbage collection removes it.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The shortest time between two garbage collections.
const COLLECTED_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The data directory of an embedder or of one tenant: the content that sandboxes read, their own directories, and the
/// workspaces. Clones share it.
///
/// Only its owner can access it. No sandbox gets a writable directory that contains it or is in it, except a
/// workspace. Two tenants have two data directories and share nothing. The directory should be on one file system, so
/// that content is hard-linked and takes no space of its own; otherwise it is copied.
#[derive(Debug, Clone)]
pub struct DataDir {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    store: Store,
    sandboxes: SandboxDirs,
    workspaces: SandboxDirs,
    temporary: Option<Temporary>,
}

/// A temporary directory that is removed with its last user, unless a workspace in it is kept.
#[derive(Debug)]
struct Temporary {
    /// `None` once it was dropped.
    directory: Option<TempDir>,
    is_kept: AtomicBool,
}

impl DataDir {
    /// Opens the data directory, and creates it if it is missing. Removes what dead processes left in it, and once a
    /// day the content that was unused for a month. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be used: it belongs to another user, other users may write into it, or it cannot
    /// be created; `NoSpace` when the disk is full.
    pub fn open(path: &Path) -> Result<Self, SandboxError> {
        let data = Self::open_without_sweep(path)?;
        data.sweep();
        Ok(data)
    }

    /// As [`DataDir::open`], without removing anything: for a caller that has opened it before, or calls
    /// [`DataDir::sweep`] later. Blocks briefly.
    ///
    /// # Errors
    /// As for [`DataDir::open`].
    pub fn open_without_sweep(path: &Path) -> Result<Self, SandboxError> {
        Self::open_at(path, StoreOptions::default(), None)
    }

    /// Creates a data directory in the system's temporary directory. It is removed with its last user. Blocks.
    ///
    /// # Errors
    /// As for [`DataDir::open`].
    pub fn temporary() -> Result<Self, SandboxError> {
        let around = std::env::temp_dir();
        let directory = tempfile::Builder::new()
            .prefix("conjure-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&around)
            .map_err(|error| unusable("make a directory in", &around, &error))?;
        // Temporary files need not survive a crash of the machine, so nothing is flushed.
        let options = StoreOptions { durability: Durability::Process, ..StoreOptions::default() };
        let path = directory.path().to_owned();
        let temporary = Temporary { directory: Some(directory), is_kept: AtomicBool::new(false) };
        Self::open_at(&path, options, Some(temporary))
    }

    fn open_at(
        path: &Path,
        options: StoreOptions,
        temporary: Option<Temporary>,
    ) -> Result<Self, SandboxError> {
        ensure_dir(path).map_err(|error| unusable("make", path, &error))?;
        // Sandboxes use paths without links.
        let path = fs::canonicalize(path).map_err(|error| unusable("open", path, &error))?;
        let store = Store::open_with(&path.join("store"), options).map_err(|error| of_store(&error))?;
        let sandboxes = SandboxDirs::open(&path)?;
        let workspaces = SandboxDirs::open_dir(path.join(WORKSPACES))?;
        Ok(Self { inner: Arc::new(Inner { path, store, sandboxes, workspaces, temporary }) })
    }

    /// Its absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Whether it is removed with its last user.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.inner.temporary.is_some()
    }

    /// The store of the content that its sandboxes read.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The directories of its sandboxes.
    #[must_use]
    pub fn sandboxes(&self) -> &SandboxDirs {
        &self.inner.sandboxes
    }

    /// Creates an empty workspace for one session. Blocks.
    ///
    /// # Errors
    /// `NoSpace` and other errors of the system.
    pub fn workspace(&self) -> Result<OwnedWorkspace, SandboxError> {
        let dir = self.inner.workspaces.create_for(DirPurpose::Workspace)?;
        Ok(OwnedWorkspace { path: dir.workspace(), dir, data: self.clone() })
    }

    /// Opens the named workspace of one session, and creates it if it is missing. It stays until
    /// [`DataDir::remove_workspace`], so another process can revive the session. Blocks.
    ///
    /// # Errors
    /// `BadRequest` for an invalid name; `NoSpace` and other errors of the system.
    pub fn named_workspace(&self, name: &str) -> Result<PathBuf, SandboxError> {
        let dir = self.named_workspace_dir(name)?;
        let path = dir.join("workspace");
        // The directory around the workspace denies access to other users: commands can change the permissions of the
        // workspace itself.
        for directory in [&dir, &path] {
            match DirBuilder::new().mode(0o700).create(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(unusable("make", directory, &error));
                }
                _ => {}
            }
        }
        #[cfg(feature = "jail")]
        {
            remount(&path)?;
            finish_swap(&path)?;
        }
        Ok(path)
    }

    /// Removes the named workspace, even if commands changed its permissions. No process may run in it any more.
    /// Returns whether it existed. Blocks.
    ///
    /// # Errors
    /// `BadRequest` for an invalid name. An error of the system when an entry cannot be removed.
    pub fn remove_workspace(&self, name: &str) -> Result<bool, SandboxError> {
        let dir = self.named_workspace_dir(name)?;
        match dir_id(&dir) {
            Ok(id) => remove_tree(&dir, id).map(|()| true),
            Err(_) if !dir.exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The directory of a named workspace. Its first letter distinguishes it from unnamed directories and from those
    /// that are being removed.
    fn named_workspace_dir(&self, name: &str) -> Result<PathBuf, SandboxError> {
        let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
            && !name.starts_with("dead-")
            && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        if is_name && name.len() <= 128 {
            return Ok(self.inner.workspaces.path().join(name));
        }
        let message = format!(
            "`{}` is no name of a workspace: 1 to 128 of `a-z`, `0-9`, `-` and `_`, a letter first",
            name.escape_debug()
        );
        Err(SandboxError::new(SandboxErrorKind::BadRequest, message))
    }

    /// Inserts all files of a directory into the store, as they are now. Skips and logs entries that the store does
    /// not accept: links that lead out of the directory, devices, pipes and sockets. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `NoSpace`; `TooLarge` beyond 20,000 files and directories or 1 GiB.
    pub fn snapshot(&self, directory: &Path) -> Result<Tree, SandboxError> {
        let tree = self.inner.store.insert_tree(directory, &TreeOptions::default());
        let tree = tree.map_err(|error| of_store(&error))?;
        for left in tree.skipped() {
            let path = directory.join(&left.path);
            tracing::warn!(path = %path.display(), reason = %left.reason, "content was not installed in the sandbox");
        }
        Ok(tree)
    }

    /// Removes the content of the store that `is_live` rejects and that is unused since `unused_since`. Installed
    /// content stays in its sandboxes. Opening the directory does this for content that is unused for a month and that
    /// no sandbox has. Blocks.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn collect(
        &self,
        is_live: impl FnMut(&Digest) -> bool,
        unused_since: Timestamp,
    ) -> Result<GcReport, SandboxError> {
        self.inner.store.collect_garbage(is_live, unused_since).map_err(|error| of_store(&error))
    }

    /// Fails for a writable directory that contains the data directory, or is in it without being a session's
    /// workspace.
    #[cfg(feature = "jail")]
    pub(crate) fn check_writable(&self, directory: &Path, what: &str) -> Result<(), SandboxError> {
        let lies_in = directory.strip_prefix(&self.inner.path).ok().filter(|inner| !is_workspace(inner));
        let how = match lies_in {
            Some(_) => "lies in",
            None if self.inner.path.starts_with(directory) => "contains",
            None => return Ok(()),
        };
        let message = format!(
            "the {what} `{}` {how} the data directory `{}`, whose files commands could then change; choose another {what}, \
             or another data directory",
            directory.display(),
            self.inner.path.display()
        );
        Err(SandboxError::new(SandboxErrorKind::PathNotAllowed, message))
    }

    /// Fails for a visible directory that contains the data directory or is in it, because the data directory
    /// contains the files of other sessions.
    #[cfg(feature = "docker")]
    pub(crate) fn check_apart(&self, directory: &Path, what: &str) -> Result<(), SandboxError> {
        let how = match (directory.starts_with(&self.inner.path), self.inner.path.starts_with(directory)) {
            (true, _) => "lies in",
            (_, true) => "contains",
            _ => return Ok(()),
        };
        let message = format!(
            "the {what} `{}` {how} the data directory `{}`, where the files of all sessions are; choose another {what}, or \
             another data directory",
            directory.display(),
            self.inner.path.display()
        );
        Err(SandboxError::new(SandboxErrorKind::PathNotAllowed, message))
    }

    /// Whether a directory is a session's workspace in this data directory, or is in one.
    #[cfg(feature = "jail")]
    pub(crate) fn is_workspace(&self, directory: &Path) -> bool {
        directory.strip_prefix(&self.inner.path).is_ok_and(is_workspace)
    }

    /// Whether a directory, by its path without links, is exactly a session's own workspace, not something in it.
    #[cfg(feature = "jail")]
    #[must_use]
    pub fn is_own_workspace(&self, directory: &Path) -> bool {
        self.is_workspace(directory)
            && directory.parent().and_then(Path::parent) == Some(self.inner.workspaces.path())
    }

    /// Completes a swap of this workspace with that of a warm sandbox ([`crate::WarmSandbox::claim`]) after a crash.
    /// It does nothing for a directory that is no session's own workspace here. Call it before a sandbox is created
    /// in the workspace. No process may run in it. Blocks, also while another swap is in progress.
    ///
    /// # Errors
    /// When files cannot be moved back. They stay beside the workspace.
    #[cfg(feature = "jail")]
    pub fn finish_workspace_swap(&self, workspace: &Path) -> Result<(), SandboxError> {
        if self.is_own_workspace(workspace) { finish_swap(workspace) } else { Ok(()) }
    }

    /// Removes what dead processes left, as opening the directory does. Once a day it also removes content that is
    /// unused for a month and not linked anywhere. It logs what it cannot remove. Blocks.
    pub fn sweep(&self) {
        for dirs in [&self.inner.sandboxes, &self.inner.workspaces] {
            match dirs.sweep() {
                Ok(swept) => {
                    if swept.removed > 0 {
                        let path = dirs.path().display();
                        tracing::info!(%path, removed = swept.removed, "removed leftovers of dead processes");
                    }
                    swept.failures.iter().for_each(|error| {
                        tracing::warn!(%error, "leftovers of a dead process cannot be removed");
                    });
                }
                Err(error) => tracing::warn!(%error, "leftovers of dead processes cannot be removed"),
            }
        }
        let store = &self.inner.store;
        let now = SystemClock.timestamp();
        let tidied = store.sweep().map_err(|error| of_store(&error)).and_then(|_| {
            if self.is_collected(now) {
                return Ok(());
            }
            let mark = self.inner.path.join(LAST_GC);
            File::create(&mark).map_err(|error| unusable("write", &mark, &error))?;
            // Content of a live sandbox or session is in use, however old it is: the next sandbox of the session gets
            // it again.
            let linked = store.linked_digests().map_err(|error| of_store(&error))?;
            let collected = self.collect(|digest| linked.contains(digest), before(now, UNUSED))?;
            tracing::debug!(?collected, "removed unused contents");
            Ok(())
        });
        if let Err(error) = tidied {
            tracing::warn!(%error, "the store's garbage was not collected");
        }
    }

    /// Whether the last garbage collection was recent.
    fn is_collected(&self, now: Timestamp) -> bool {
        let date = fs::metadata(self.inner.path.join(LAST_GC)).and_then(|found| found.modified());
        let since = date.ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        since.is_some_and(|since| since.as_millis() > u128::from(before(now, COLLECTED_EVERY).millis()))
    }
}

const WORKSPACES: &str = "workspaces";
const LAST_GC: &str = "last-gc";

/// Whether a relative path is `workspaces/NAME/workspace` or beneath it.
#[cfg(feature = "jail")]
fn is_workspace(inner: &Path) -> bool {
    let mut parts = inner.components();
    let mut next = || parts.next();
    next() == Some(std::path::Component::Normal(WORKSPACES.as_ref()))
        && next().is_some()
        && next() == Some(std::path::Component::Normal("workspace".as_ref()))
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.millis().saturating_sub(millis))
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(temporary) = &mut self.temporary else { return };
        let Some(directory) = temporary.directory.take() else { return };
        if !temporary.is_kept.load(Ordering::Acquire) {
            return;
        }
        let _ = directory.keep();
        for name in ["store", "sandboxes"] {
            let path = self.path.join(name);
            let removed = dir_id(&path).and_then(|id| remove_tree(&path, id));
            if let Err(error) = removed {
                tracing::warn!(%error, "a temporary directory was not removed");
            }
        }
    }
}

/// The workspace of one session: an empty directory of the host's user, inside a directory that other users cannot
/// enter. It is removed when this is dropped, even if commands changed its permissions. After a crash, the next
/// opening of the data directory removes it.
#[derive(Debug)]
pub struct OwnedWorkspace {
    path: PathBuf,
    dir: SandboxDir,
    data: DataDir,
}

impl OwnedWorkspace {
    /// Its absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory permanently. If the data directory is temporary, it stays, too.
    ///
    /// # Errors
    /// When the mark cannot be written. Then the directory stays until the data directory is opened again.
    pub fn keep(self) -> Result<PathBuf, SandboxError> {
        let Self { path, dir, data } = self;
        let kept = dir.keep();
        if let Some(temporary) = &data.inner.temporary {
            temporary.is_kept.store(true, Ordering::Release);
        }
        kept.map(|()| path)
    }
}

fn of_store(error: &StoreError) -> SandboxError {
    SandboxError::new(kind_of(error), error.to_string())
}

fn unusable(doing: &str, path: &Path, error: &std::io::Error) -> SandboxError {
    let kind = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SandboxErrorKind::NoSpace,
        _ => SandboxErrorKind::Unavailable,
    };
    let path = path.display();
    SandboxError::new(kind, format!("sandboxes have no data directory: failed to {doing} `{path}`: {error}"))
}
