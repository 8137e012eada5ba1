//! [`ContentDirs`]: the directory of a running sandbox, shared by its guard and its content installer.
//!
//! State: the directory. [`ContentDirs::remove`] removes it after pending installs; afterwards nothing can be
//! installed.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use conjure_fs::run_blocking;
use futures_util::future::BoxFuture;

use super::sandbox_dir::{LinkMethod, SandboxDir};
use crate::content::{CommitToken, ContentDir, ContentInstaller, ContentItem};
use crate::error::{SandboxError, SandboxErrorKind};

/// The directory of a running sandbox, with its content directories. Clones share it.
#[derive(Debug, Clone)]
pub struct ContentDirs {
    /// `None` once the directory was removed.
    dir: Arc<RwLock<Option<SandboxDir>>>,
    link_method: LinkMethod,
}

impl ContentDirs {
    /// The content directories of `dir`, which belongs to the sandbox from now on.
    #[must_use]
    pub fn new(dir: SandboxDir) -> Self {
        Self { dir: Arc::new(RwLock::new(Some(dir))), link_method: LinkMethod::Linked }
    }

    /// Creates it for a sandbox without a file system of its own. Its commands could write there, so it gets copies.
    /// It takes artifacts only.
    pub(crate) fn with_copies(dir: SandboxDir) -> Self {
        Self { link_method: LinkMethod::Copied, ..Self::new(dir) }
    }

    /// Removes the directory with its content. No process may run in the sandbox any more. Blocks, also for pending
    /// installs. A second call does nothing.
    ///
    /// # Errors
    /// When an entry cannot be removed; a later sweep tries again.
    pub fn remove(&self) -> Result<(), SandboxError> {
        let dir = self.dir.write().unwrap_or_else(PoisonError::into_inner).take();
        dir.map_or(Ok(()), SandboxDir::remove)
    }

    fn install_blocking(&self, item: &ContentItem, token: &CommitToken) -> Result<PathBuf, SandboxError> {
        let dir = self.dir.read().unwrap_or_else(PoisonError::into_inner);
        let dir = dir.as_ref().ok_or_else(removed_error)?;
        if self.link_method == LinkMethod::Copied && item.dir != ContentDir::Artifacts {
            let message = "this kind of sandbox has skills where the host has them";
            return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
        }
        dir.install_with(self.link_method, item, token)?;
        Ok(match self.link_method {
            LinkMethod::Linked => item.path(),
            LinkMethod::Copied => dir.content_dir(item.dir).join(&item.name),
        })
    }

    /// The write lock waits for a pending install, even if the caller has dropped its future.
    fn remove_blocking(
        &self,
        content_dir: ContentDir,
        name: &str,
        token: &CommitToken,
    ) -> Result<(), SandboxError> {
        let dir = self.dir.write().unwrap_or_else(PoisonError::into_inner);
        dir.as_ref().ok_or_else(removed_error)?.remove_entry(content_dir, name, token)
    }
}

fn removed_error() -> SandboxError {
    SandboxError::new(SandboxErrorKind::Lost, "the sandbox has ended, and its directory is gone")
}

impl ContentInstaller for ContentDirs {
    fn install(
        &self,
        item: ContentItem,
        token: CommitToken,
    ) -> BoxFuture<'static, Result<PathBuf, SandboxError>> {
        let dirs = self.clone();
        // If this future is dropped, the thread runs until it asks for the commit, and then cleans up.
        Box::pin(async { run_blocking(move || dirs.install_blocking(&item, &token)).await? })
    }

    fn remove(
        &self,
        content_dir: ContentDir,
        name: String,
        token: CommitToken,
    ) -> BoxFuture<'static, Result<(), SandboxError>> {
        let dirs = self.clone();
        Box::pin(async move { run_blocking(move || dirs.remove_blocking(content_dir, &name, &token)).await? })
    }
}
