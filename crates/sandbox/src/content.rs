//! Content that is installed in a sandbox while it runs: a skill's directory, an artifact.
//!
//! A sandbox that supports it has two content directories, which commands can read and not write. Content comes from
//! a store: its digest identifies it, and it never changes. Commands see content completely or not at all, even when
//! the caller stops waiting.
//!
//! State: none here. The connector of the sandbox owns the directories.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use conjure_base::Digest;
use conjure_store::{FileMode, Store, Tree};
use futures_util::future::BoxFuture;

use crate::error::SandboxError;

/// A content directory of a sandbox: read-only for commands, filled by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentDir {
    /// Skills, each a directory: `/mnt/skills/NAME`.
    Skills,
    /// Artifacts, each a file or a directory: `/artifacts/NAME`.
    Artifacts,
}

impl ContentDir {
    /// Both directories.
    pub const ALL: [Self; 2] = [Self::Skills, Self::Artifacts];

    /// Its path in a sandbox with a file system of its own.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Skills => "/mnt/skills",
            Self::Artifacts => "/artifacts",
        }
    }
}

/// An item to install in a content directory, and the store that holds its content.
#[derive(Debug, Clone)]
pub struct ContentItem {
    /// The directory to install it in.
    pub dir: ContentDir,
    /// Its file name: at most 255 bytes, without `/`.
    pub name: String,
    /// The store of its content. Items of one directory may come from several stores.
    pub store: Store,
    /// Its content in the store.
    pub content: ItemContent,
}

/// The content of an item: a file or a tree of files.
#[derive(Debug, Clone)]
pub enum ItemContent {
    /// A file.
    File {
        /// Its content.
        digest: Digest,
        /// Whether it is executable.
        mode: FileMode,
    },
    /// A directory with its files.
    Tree(Arc<Tree>),
}

impl ContentItem {
    /// An item that is a file with this content.
    pub fn file(
        dir: ContentDir,
        name: impl Into<String>,
        store: &Store,
        digest: Digest,
        mode: FileMode,
    ) -> Self {
        let content = ItemContent::File { digest, mode };
        Self { dir, name: name.into(), store: store.clone(), content }
    }

    /// An artifact with this content.
    pub fn artifact(name: impl Into<String>, store: &Store, digest: Digest) -> Self {
        Self::file(ContentDir::Artifacts, name, store, digest, FileMode::Plain)
    }

    /// An item that is a directory with these files.
    pub fn tree(dir: ContentDir, name: impl Into<String>, store: &Store, tree: impl Into<Arc<Tree>>) -> Self {
        let content = ItemContent::Tree(tree.into());
        Self { dir, name: name.into(), store: store.clone(), content }
    }

    /// The path of the item in a sandbox with a file system of its own.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(self.dir.path()).join(&self.name)
    }
}

/// Installs and removes content in one running sandbox. The guard of a sandbox returns it
/// ([`crate::SandboxGuard::content_installer`]).
pub trait ContentInstaller: Send + Sync + fmt::Debug {
    /// Installs the item completely or not at all, and returns its path in the sandbox. The implementation may
    /// prepare the item for a long time, where the sandbox does not see it. Right before the item appears, it must
    /// call [`CommitToken::commit`]; if that returns false, the item must not appear. The future may be dropped: its
    /// work is then undone soon.
    ///
    /// # Errors
    /// As for [`crate::Executor::install_content`]. After a refused commit, any error.
    fn install(
        &self,
        provision: ContentItem,
        consent: CommitToken,
    ) -> BoxFuture<'static, Result<PathBuf, SandboxError>>;

    /// Removes the entry of this name completely. Right before that, the implementation must call
    /// [`CommitToken::commit`]; if it returns false, the entry stays. Without such an entry it does nothing. A
    /// removal whose future was dropped after the commit finishes before anything else appears under the name.
    ///
    /// # Errors
    /// As for [`crate::Executor::remove_content`]. After a refused commit, any error.
    fn remove(
        &self,
        dir: ContentDir,
        name: String,
        consent: CommitToken,
    ) -> BoxFuture<'static, Result<(), SandboxError>>;
}

/// Decides once between commit and cancel: the first call wins. So a cancelled change never takes effect, and a change
/// that took effect is never reported as cancelled. Clones share the decision.
#[derive(Debug, Clone, Default)]
pub struct CommitToken(Arc<AtomicU8>);

const OPEN: u8 = 0;
const COMMITTED: u8 = 1;
const CANCELLED: u8 = 2;

impl CommitToken {
    /// Commits the change, unless it was cancelled. Returns whether it is committed.
    #[must_use]
    pub fn commit(&self) -> bool {
        self.decide(COMMITTED)
    }

    /// Cancels the change, unless it was committed. Returns whether it is cancelled.
    #[must_use]
    pub fn cancel(&self) -> bool {
        self.decide(CANCELLED)
    }

    fn decide(&self, decision: u8) -> bool {
        let decided = self.0.compare_exchange(OPEN, decision, Ordering::AcqRel, Ordering::Acquire);
        decided.is_ok() || decided == Err(decision)
    }
}

/// Cancels the token when it is dropped.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) CommitToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // The change may be committed already.
        let _ = self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consent_is_decided_once() {
        let consent = CommitToken::default();
        assert!(consent.commit() && consent.clone().commit());
        assert!(!consent.cancel());
        let consent = CommitToken::default();
        drop(CancelOnDrop(consent.clone()));
        assert!(!consent.commit() && consent.cancel());
    }
}
