//! [`SandboxDir`]: the locked directory of one sandbox, or of one session's workspace, on the host.
//!
//! ```text
//! <dir>/lock        locked while this process lives
//! <dir>/skills/     mounted at /mnt/skills
//! <dir>/artifacts/  mounted at /artifacts
//! <dir>/output/     output that was cut, written by the sandbox
//! <dir>/draft-…     content that is being prepared or removed
//!
//! <dir>/lock
//! <dir>/workspace/  the workspace of a session
//! <dir>/keep        marks a directory that no sweep removes
//! ```
//!
//! State: the directory. It is removed when the value is dropped, and after a crash by [`super::SandboxDirs::sweep`].

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_fs::{FileLock, rename_dir_new, rename_file_new};
use conjure_store::{StoreError, StoreErrorKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::dirs_state::{DirsState, keep, unavailable};
use super::remove_tree::remove_beneath;
use crate::content::{CommitToken, ContentDir, ContentItem, ItemContent};
use crate::error::{SandboxError, SandboxErrorKind};

const WORKSPACE: &str = "workspace";

/// The mode of the subdirectories: processes of the sandbox may run as another user than the host.
const SHARED: Mode = Mode::from_raw_mode(0o755);

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The name of a content directory on the host.
const fn content_dir_name(content_dir: ContentDir) -> &'static str {
    match content_dir {
        ContentDir::Skills => "skills",
        ContentDir::Artifacts => "artifacts",
    }
}

/// How content gets into the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkMethod {
    /// As hard links into the store, where possible. The sandbox sees the directory read-only.
    Linked,
    /// As copies, because the commands of the sandbox could change them.
    Copied,
}

/// The contents of a new directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirPurpose {
    Sandbox,
    Workspace,
}

/// The directory of one sandbox. It is locked while this value lives, and removed with it.
#[derive(Debug)]
pub struct SandboxDir {
    owner: Arc<DirsState>,
    name: String,
    path: PathBuf,
    directory: OwnedFd,
    /// `None` once the directory was removed.
    lock: Option<FileLock>,
    next: AtomicU64,
}

impl SandboxDir {
    pub(super) fn new(owner: Arc<DirsState>, name: String, directory: OwnedFd, lock: FileLock) -> Self {
        let path = owner.path().join(&name);
        Self { owner, name, path, directory, lock: Some(lock), next: AtomicU64::new(0) }
    }

    /// Creates the subdirectories.
    pub(super) fn create_layout(&self, purpose: DirPurpose) -> Result<(), SandboxError> {
        let created = match purpose {
            DirPurpose::Sandbox => {
                [content_dir_name(ContentDir::Skills), content_dir_name(ContentDir::Artifacts), "output"]
                    .into_iter()
                    .try_for_each(|name| self.create_dir(name))
            }
            DirPurpose::Workspace => rustix::fs::mkdirat(&self.directory, WORKSPACE, Mode::RWXU),
        };
        created.map_err(|errno| unavailable("create the contents of", &self.path, errno))
    }

    fn create_dir(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.directory, name, Mode::RWXU)?;
        // Independent of the umask of this process.
        rustix::fs::chmodat(&self.directory, name, SHARED, AtFlags::empty())
    }

    /// Its name among the directories.
    #[cfg(feature = "docker")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The host directory behind this content directory.
    #[must_use]
    pub fn content_dir(&self, content_dir: ContentDir) -> PathBuf {
        self.path.join(content_dir_name(content_dir))
    }

    /// The workspace of a session. Commands can change its permissions, but not those of the directory around it.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.path.join(WORKSPACE)
    }

    /// Keeps the directory, so that sweeps do not remove it. If that fails, the next sweep removes it.
    pub(crate) fn keep(mut self) -> Result<(), SandboxError> {
        // The lock is released in any case: without the mark, the next sweep removes the directory.
        let _lock = self.lock.take();
        keep(&self.directory).map_err(|errno| unavailable("keep", &self.path, errno))
    }

    /// The directory for output that was cut.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.path.join("output")
    }

    /// Installs content of a store atomically, also while the sandbox runs: by hard links where the store is on the
    /// same file system, else by copies. Blocks.
    ///
    /// # Errors
    /// `BadRequest` when the name is invalid; `Exists` when it is taken; `NotFound` when the store lacks some of the
    /// content; `NoSpace`; `Cancelled` when `token` was cancelled before the commit. Then nothing of the content is
    /// installed.
    pub fn install(&self, item: &ContentItem, token: &CommitToken) -> Result<(), SandboxError> {
        self.install_with(LinkMethod::Linked, item, token)
    }

    /// As [`SandboxDir::install`], by this method.
    pub(super) fn install_with(
        &self,
        method: LinkMethod,
        item: &ContentItem,
        token: &CommitToken,
    ) -> Result<(), SandboxError> {
        let ContentItem { dir: content_dir, name, store, content } = item;
        check_name(name)?;
        let to = self.open(content_dir_name(*content_dir))?;
        // Fails early if the name is taken.
        if rustix::fs::statat(&to, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(name_taken(name));
        }
        let staging = format!("draft-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let staged = self.create_dir(&staging).map_err(|errno| unavailable("make", &self.path, errno));
        let result = staged.and_then(|()| {
            let directory = self.open(&staging)?;
            let linked = match content {
                ItemContent::Tree(_) if method == LinkMethod::Copied => {
                    let message =
                        format!("`{name}` is a directory, and this kind of sandbox takes files alone");
                    return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
                }
                ItemContent::Tree(tree) => store.link_tree(tree, &directory),
                // A copy takes time, so a copied file is also staged first.
                ItemContent::File { digest, mode } => match method {
                    LinkMethod::Linked => {
                        store.link_into(digest, *mode, &directory, Path::new(name)).map(drop)
                    }
                    LinkMethod::Copied => store.copy_into(digest, *mode, &directory, Path::new(name)),
                },
            };
            linked.map_err(|error| store_failure(name, &error))?;
            if !token.commit() {
                let message = format!("`{name}` is not wanted in the sandbox any more");
                return Err(SandboxError::new(SandboxErrorKind::Cancelled, message));
            }
            let moved = match content {
                ItemContent::Tree(_) => rename_dir_new(&self.directory, staging.as_str(), &to, name.as_str()),
                ItemContent::File { .. } => rename_file_new(&directory, name.as_str(), &to, name.as_str()),
            };
            moved.map_err(|errno| match errno {
                Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => name_taken(name),
                other => unavailable("fill", &self.path, other),
            })
        });
        let is_left = result.is_err() || matches!(content, ItemContent::File { .. });
        if is_left && let Err(error) = remove_beneath(self.directory.as_fd(), staging.as_ref(), None) {
            tracing::warn!(%error, "incomplete content stays in a sandbox's directory, where commands cannot see it");
        }
        result
    }

    /// Removes the entry of this name atomically, also while the sandbox runs. Without such an entry it does nothing.
    /// Blocks.
    ///
    /// # Errors
    /// `BadRequest` when the name is invalid; `Cancelled` when `token` was cancelled before the commit; errors of the
    /// system.
    pub fn remove_entry(
        &self,
        content_dir: ContentDir,
        name: &str,
        token: &CommitToken,
    ) -> Result<(), SandboxError> {
        check_name(name)?;
        let from = self.open(content_dir_name(content_dir))?;
        let store_failure = |errno| unavailable("clear", &self.path, errno);
        let found = match rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            other => FileType::from_raw_mode(other.map_err(store_failure)?.st_mode),
        };
        if !token.commit() {
            let message = format!("`{name}` is to stay in the sandbox");
            return Err(SandboxError::new(SandboxErrorKind::Cancelled, message));
        }
        if found != FileType::Directory {
            return match rustix::fs::unlinkat(&from, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(store_failure(errno)),
            };
        }
        let removed = format!("draft-{}", self.next.fetch_add(1, Ordering::Relaxed));
        rename_dir_new(&from, name, &self.directory, removed.as_str()).map_err(store_failure)?;
        if let Err(error) = remove_beneath(self.directory.as_fd(), removed.as_ref(), None) {
            tracing::warn!(%error, "removed content stays in a sandbox's directory, where commands cannot see it");
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<OwnedFd, SandboxError> {
        rustix::fs::openat(&self.directory, name, DIR, Mode::empty())
            .map_err(|errno| unavailable("open", &self.path.join(name), errno))
    }

    /// Removes the directory with its content. No process may run in the sandbox any more. Blocks.
    ///
    /// # Errors
    /// When an entry cannot be removed; a later sweep tries again.
    pub fn remove(mut self) -> Result<(), SandboxError> {
        self.remove_now()
    }

    fn remove_now(&mut self) -> Result<(), SandboxError> {
        match self.lock.take() {
            Some(lock) => self.owner.remove_locked(&self.name, &self.directory, lock),
            None => Ok(()),
        }
    }
}

impl Drop for SandboxDir {
    fn drop(&mut self) {
        if let Err(error) = self.remove_now() {
            tracing::warn!(%error, "a sandbox's directory was not removed; the next sweep removes it");
        }
    }
}

/// Fails unless `name` is a plain file name.
fn check_name(name: &str) -> Result<(), SandboxError> {
    let is_name = !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0']);
    if is_name {
        return Ok(());
    }
    let message = format!("`{name}` cannot be the name of a file or directory");
    Err(SandboxError::new(SandboxErrorKind::BadRequest, message))
}

fn name_taken(name: &str) -> SandboxError {
    let message = format!("the sandbox has a `{name}` already, which stays as it is");
    SandboxError::new(SandboxErrorKind::Exists, message)
}

fn store_failure(name: &str, error: &StoreError) -> SandboxError {
    if error.kind() == StoreErrorKind::Exists {
        return name_taken(name);
    }
    SandboxError::new(kind_of(error), format!("`{name}` cannot be given to the sandbox: {error}"))
}

/// The kind of a sandbox error for an error of the store.
pub(crate) fn kind_of(error: &StoreError) -> SandboxErrorKind {
    match error.kind() {
        StoreErrorKind::Exists => SandboxErrorKind::Exists,
        StoreErrorKind::Unusable => SandboxErrorKind::Unavailable,
        StoreErrorKind::NotFound => SandboxErrorKind::NotFound,
        StoreErrorKind::NoSpace => SandboxErrorKind::NoSpace,
        StoreErrorKind::LimitExceeded => SandboxErrorKind::TooLarge,
        StoreErrorKind::PermissionDenied | StoreErrorKind::ReadOnly => SandboxErrorKind::PermissionDenied,
        _ => SandboxErrorKind::Io,
    }
}
