//! The folder in which a host, or a tenant, keeps what its sandboxes read and what is theirs.
//!
//! ```text
//! <data>/store/       contents by digest: skills as sandboxes were given them
//! <data>/sandboxes/   a place for each sandbox: its shelves, its cut output
//! <data>/workspaces/  a place for each session's own workspace; those with names stay until they are removed
//! <data>/collected    dated when contents were last removed that nobody used
//! ```
//!
//! State: all of that, on the disk. After a crash, what the host's sandboxes and sessions had is removed when the folder is
//! opened the next time, by whichever process; a workspace that was kept stays. Nothing that must be there lies in the
//! store: what a session needs is inserted again.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use conjure_base::{Clock as _, Digest, SystemClock, Timestamp};
use conjure_store::{Collected, Durability, Store, StoreError, StoreOptions, Tree, TreeOptions};
use tempfile::TempDir;

use crate::error::{SandboxError, SandboxErrorKind};
use crate::places::{FolderId, Place, Places, Purpose, kind_of, remove_folder};
#[cfg(feature = "jail")]
use crate::places::{mount_again, settle};

/// Contents that nobody used for so long are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// It is looked for them no more often than this.
const COLLECTED_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder in which a host, or a tenant, keeps what its sandboxes read and what is theirs. Clones are the same.
///
/// Nobody else may reach it: it is made for its owner alone, and sandboxes get no folder to write that contains it or lies
/// in it. Two tenants have two, and share nothing. It should lie on one file system, so that what a sandbox reads is
/// linked and takes no space of its own; where it cannot be linked it is copied.
#[derive(Debug, Clone)]
pub struct DataFolder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    store: Store,
    sandboxes: Places,
    workspaces: Places,
    temporary: Option<Temporary>,
}

/// A folder that goes with its last user, unless something in it is kept.
#[derive(Debug)]
struct Temporary {
    /// `None` once it was dropped.
    folder: Option<TempDir>,
    is_kept: AtomicBool,
}

impl DataFolder {
    /// The data in this folder, which is made if it is missing. Removes what dead hosts left in it, and once a day the
    /// contents that were not used for a month. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be used: it belongs to somebody else, others may write into it, or it cannot be made;
    /// `NoSpace` when the disk is full.
    pub fn open(path: &Path) -> Result<Self, SandboxError> {
        let data = Self::open_untidied(path)?;
        data.tidy();
        Ok(data)
    }

    /// The same, and nothing is removed: for who has opened it before, or does [`DataFolder::tidy`] in a time of its own. Blocks for a
    /// moment.
    ///
    /// # Errors
    /// As for [`DataFolder::open`].
    pub fn open_untidied(path: &Path) -> Result<Self, SandboxError> {
        Self::at(path, StoreOptions::default(), None)
    }

    /// A new one in the system's temporary folder, which goes with its last user. Blocks.
    ///
    /// # Errors
    /// As for [`DataFolder::open`].
    pub fn temporary() -> Result<Self, SandboxError> {
        let around = std::env::temp_dir();
        let folder = tempfile::Builder::new()
            .prefix("conjure-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&around)
            .map_err(|error| unusable("make a folder in", &around, &error))?;
        // It is emptied before the machine is started again, or need not be whole then.
        let options = StoreOptions { durability: Durability::Process, ..StoreOptions::default() };
        let path = folder.path().to_owned();
        let temporary = Temporary { folder: Some(folder), is_kept: AtomicBool::new(false) };
        Self::at(&path, options, Some(temporary))
    }

    fn at(path: &Path, options: StoreOptions, temporary: Option<Temporary>) -> Result<Self, SandboxError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| unusable("make", path, &error))?;
        // Sandboxes name folders without links in them.
        let path = fs::canonicalize(path).map_err(|error| unusable("open", path, &error))?;
        let store = Store::open_with(&path.join("store"), options).map_err(|error| of_store(&error))?;
        let sandboxes = Places::open(&path)?;
        let workspaces = Places::in_folder(path.join(WORKSPACES))?;
        Ok(Self { inner: Arc::new(Inner { path, store, sandboxes, workspaces, temporary }) })
    }

    /// Its absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Whether it goes with its last user.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.inner.temporary.is_some()
    }

    /// What its sandboxes read.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The folders of its sandboxes.
    #[must_use]
    pub fn sandboxes(&self) -> &Places {
        &self.inner.sandboxes
    }

    /// A new empty workspace, private to a session. Blocks.
    ///
    /// # Errors
    /// `NoSpace` and others by the system.
    pub fn workspace(&self) -> Result<PrivateWorkspace, SandboxError> {
        let place = self.inner.workspaces.make_for(Purpose::Workspace)?;
        Ok(PrivateWorkspace { path: place.workspace(), place, data: self.clone() })
    }

    /// The workspace of this name, private to a session that is revived by other processes: it stays until
    /// [`DataFolder::remove_workspace`]. It is made, empty, where it is missing. Blocks.
    ///
    /// # Errors
    /// `BadRequest` for what is no name of one; `NoSpace` and others by the system.
    pub fn named_workspace(&self, name: &str) -> Result<PathBuf, SandboxError> {
        let place = self.named_place(name)?;
        let path = place.join("workspace");
        // The place keeps others out: commands can change the permissions of what is in it.
        for folder in [&place, &path] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(unusable("make", folder, &error));
                }
                _ => {}
            }
        }
        #[cfg(feature = "jail")]
        {
            mount_again(&path)?;
            settle(&path)?;
        }
        Ok(path)
    }

    /// Removes the workspace of this name, whatever commands made of it. Nothing may run in it any more. Whether it was
    /// there. Blocks.
    ///
    /// # Errors
    /// `BadRequest` for what is no name of one; when something in it cannot be removed.
    pub fn remove_workspace(&self, name: &str) -> Result<bool, SandboxError> {
        let place = self.named_place(name)?;
        match FolderId::of(&place) {
            Ok(id) => remove_folder(&place, id).map(|()| true),
            Err(_) if !place.exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where a workspace of this name lies. Its first letter keeps it apart from places without a name, and from dead ones.
    fn named_place(&self, name: &str) -> Result<PathBuf, SandboxError> {
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

    /// All files of a folder as they are now, in the store. What the store cannot take is left out, and logged: links
    /// that lead out of the folder, devices, pipes and sockets. Blocks.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `NoSpace`; `TooLarge` beyond 20,000 files and folders or 1 GiB.
    pub fn snapshot(&self, folder: &Path) -> Result<Tree, SandboxError> {
        let tree = self.inner.store.insert_tree(folder, &TreeOptions::default());
        let tree = tree.map_err(|error| of_store(&error))?;
        for left in tree.left_out() {
            let path = folder.join(&left.path);
            tracing::warn!(path = %path.display(), reason = %left.reason, "not given to the sandbox");
        }
        Ok(tree)
    }

    /// Removes the contents of the store for which `is_live` says no and that were not used since `unused_since`. What
    /// sandboxes have stays with them. Opening the folder does this by itself for those that were not used for a month and
    /// that no sandbox has. Blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn collect(
        &self,
        is_live: impl FnMut(&Digest) -> bool,
        unused_since: Timestamp,
    ) -> Result<Collected, SandboxError> {
        self.inner.store.collect(is_live, unused_since).map_err(|error| of_store(&error))
    }

    /// Refuses a folder for commands to write, where they are kept apart from the host, that contains this one, or lies in it and is no session's workspace.
    #[cfg(feature = "jail")]
    pub(crate) fn check_writable(&self, folder: &Path, what: &str) -> Result<(), SandboxError> {
        let lies_in = folder.strip_prefix(&self.inner.path).ok().filter(|inner| !is_workspace(inner));
        let how = match lies_in {
            Some(_) => "lies in",
            None if self.inner.path.starts_with(folder) => "contains",
            None => return Ok(()),
        };
        let message = format!(
            "the {what} `{}` {how} the data folder `{}`, whose files commands could then change; choose another {what}, \
             or another data folder",
            folder.display(),
            self.inner.path.display()
        );
        Err(SandboxError::new(SandboxErrorKind::PathNotAllowed, message))
    }

    /// Refuses a folder for commands to see that contains this one, or lies in it: other sessions' files are there.
    #[cfg(feature = "docker")]
    pub(crate) fn check_apart(&self, folder: &Path, what: &str) -> Result<(), SandboxError> {
        let how = match (folder.starts_with(&self.inner.path), self.inner.path.starts_with(folder)) {
            (true, _) => "lies in",
            (_, true) => "contains",
            _ => return Ok(()),
        };
        let message = format!(
            "the {what} `{}` {how} the data folder `{}`, where the files of all sessions are; choose another {what}, or \
             another data folder",
            folder.display(),
            self.inner.path.display()
        );
        Err(SandboxError::new(SandboxErrorKind::PathNotAllowed, message))
    }

    /// Whether a folder is the own workspace of one of its sessions.
    #[cfg(feature = "jail")]
    pub(crate) fn is_workspace(&self, folder: &Path) -> bool {
        folder.strip_prefix(&self.inner.path).is_ok_and(is_workspace)
    }

    /// Whether a folder, by its path without links, is the own workspace of one of its sessions, itself, and nothing in one.
    #[cfg(feature = "jail")]
    #[must_use]
    pub fn is_own_workspace(&self, folder: &Path) -> bool {
        self.is_workspace(folder)
            && folder.parent().and_then(Path::parent) == Some(self.inner.workspaces.path())
    }

    /// Completes what a host that died left half done when it gave this workspace to a sandbox that was made before
    /// ([`crate::Spare::claim`]); of a folder that is no session's own workspace here, nothing is done. Whoever has a sandbox
    /// made in it does so first. Nothing may run in it. Blocks, also while somebody gives it away just now.
    ///
    /// # Errors
    /// When its files cannot be brought back; they stay where they are, beside it.
    #[cfg(feature = "jail")]
    pub fn settle_workspace(&self, workspace: &Path) -> Result<(), SandboxError> {
        if self.is_own_workspace(workspace) { settle(workspace) } else { Ok(()) }
    }

    /// Removes what dead hosts left, and once a day the contents that were not used for a month and that nobody has a link to: what
    /// opening the folder does, again. What cannot be removed is told, and in nobody's way. Blocks.
    pub fn tidy(&self) {
        for places in [&self.inner.sandboxes, &self.inner.workspaces] {
            match places.sweep() {
                Ok(swept) => {
                    if swept.removed > 0 {
                        let path = places.path().display();
                        tracing::info!(%path, removed = swept.removed, "removed what dead hosts left");
                    }
                    swept.failures.iter().for_each(|error| {
                        tracing::warn!(%error, "what a dead host left cannot be removed");
                    });
                }
                Err(error) => tracing::warn!(%error, "what dead hosts left cannot be removed"),
            }
        }
        let store = &self.inner.store;
        let now = SystemClock.timestamp();
        let tidied = store.sweep().map_err(|error| of_store(&error)).and_then(|_| {
            if self.is_collected(now) {
                return Ok(());
            }
            let mark = self.inner.path.join(COLLECTED);
            File::create(&mark).map_err(|error| unusable("write", &mark, &error))?;
            // What a sandbox has, or a session's skill, is of use however long ago it was put there, and whatever the clock says:
            // the sandbox that takes the place of this one gets it anew.
            let linked = store.linked().map_err(|error| of_store(&error))?;
            let collected = self.collect(|digest| linked.contains(digest), before(now, UNUSED))?;
            tracing::debug!(?collected, "contents that nobody used are removed");
            Ok(())
        });
        if let Err(error) = tidied {
            tracing::warn!(%error, "the store is not tidied");
        }
    }

    /// Whether contents were collected not long ago.
    fn is_collected(&self, now: Timestamp) -> bool {
        let date = fs::metadata(self.inner.path.join(COLLECTED)).and_then(|found| found.modified());
        let since = date.ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        since.is_some_and(|since| since.as_millis() > u128::from(before(now, COLLECTED_EVERY).millis()))
    }
}

const WORKSPACES: &str = "workspaces";
const COLLECTED: &str = "collected";

/// A path in the data folder: `workspaces/NAME/workspace`, or beneath that.
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
        let Some(folder) = temporary.folder.take() else { return };
        if !temporary.is_kept.load(Ordering::Acquire) {
            return;
        }
        let _ = folder.keep();
        for name in ["store", "sandboxes"] {
            let path = self.path.join(name);
            let removed = FolderId::of(&path).and_then(|id| remove_folder(&path, id));
            if let Err(error) = removed {
                tracing::warn!(%error, "a temporary folder is left");
            }
        }
    }
}

/// The workspace of one session: an empty folder of the host's user, in one that nobody else may enter. It is removed when
/// this is dropped, whatever commands made of it; when the host dies before, by whoever opens the data folder next.
#[derive(Debug)]
pub struct PrivateWorkspace {
    path: PathBuf,
    place: Place,
    data: DataFolder,
}

impl PrivateWorkspace {
    /// The folder's absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the folder stay where it is, for ever. The data folder stays with it, where it is temporary.
    ///
    /// # Errors
    /// When that cannot be noted on the disk. It stays until the data folder is opened again.
    pub fn keep(self) -> Result<PathBuf, SandboxError> {
        let Self { path, place, data } = self;
        let kept = place.keep();
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
    SandboxError::new(kind, format!("sandboxes have no data folder: failed to {doing} `{path}`: {error}"))
}
