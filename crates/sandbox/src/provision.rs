//! Content that is given to a sandbox while it runs: a skill's folder, an artifact.
//!
//! A sandbox that can take some has two shelves, which its commands read and never write. What is put there comes out of
//! a store, so its digest says what it is, and it stays as it was given. It is seen whole or not at all: whoever gives it
//! may stop at any moment.
//!
//! State: none here. The shelves lie where the sandbox's connector keeps them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use conjure_base::Digest;
use conjure_store::{Store, Tree, Variant};
use futures_util::future::BoxFuture;

use crate::error::SandboxError;

/// Which of the folders that a sandbox reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shelf {
    /// Skills, each a folder of its name: `/mnt/skills/NAME`.
    Skills,
    /// Artifacts, each a file of its name, or a folder: `/artifacts/NAME`.
    Artifacts,
}

impl Shelf {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Skills, Self::Artifacts];

    /// Where a sandbox with a file system of its own has it.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Skills => "/mnt/skills",
            Self::Artifacts => "/artifacts",
        }
    }
}

/// What is put on a shelf, of the store that holds it.
#[derive(Debug, Clone)]
pub struct Provision {
    /// On which shelf.
    pub shelf: Shelf,
    /// Under which name: one that a file may have, at most 255 bytes, without `/`.
    pub name: String,
    /// The store, which need not be that of other things on the shelf.
    pub store: Store,
    /// What of it.
    pub content: Provided,
}

/// A content of a store, or many in folders.
#[derive(Debug, Clone)]
pub enum Provided {
    /// A file.
    File {
        /// Its content.
        digest: Digest,
        /// Whether it is executable.
        variant: Variant,
    },
    /// A folder with all that is in it.
    Tree(Arc<Tree>),
}

impl Provision {
    /// The file with this content.
    pub fn file(
        shelf: Shelf,
        name: impl Into<String>,
        store: &Store,
        digest: Digest,
        variant: Variant,
    ) -> Self {
        let content = Provided::File { digest, variant };
        Self { shelf, name: name.into(), store: store.clone(), content }
    }

    /// The artifact with this content.
    pub fn artifact(name: impl Into<String>, store: &Store, digest: Digest) -> Self {
        Self::file(Shelf::Artifacts, name, store, digest, Variant::Plain)
    }

    /// The folder with these files.
    pub fn tree(shelf: Shelf, name: impl Into<String>, store: &Store, tree: impl Into<Arc<Tree>>) -> Self {
        let content = Provided::Tree(tree.into());
        Self { shelf, name: name.into(), store: store.clone(), content }
    }

    /// Where a sandbox with a file system of its own has it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(self.shelf.path()).join(&self.name)
    }
}

/// Puts things on the shelves of one running sandbox. What a connector's guard gives, where it can
/// ([`crate::SandboxGuard::provider`]).
pub trait Provider: Send + Sync + fmt::Debug {
    /// Puts it there, whole, or leaves nothing of it, and yields where the sandbox has it. It may be prepared at length where the sandbox does not see it;
    /// right before it appears, [`Consent::take`] must be asked, and when that says no, nothing appears. The future may
    /// be dropped; what it began is undone then, soon.
    ///
    /// # Errors
    /// As for [`crate::Executor::provide`]. After a consent that was refused, any.
    fn provide(
        &self,
        provision: Provision,
        consent: Consent,
    ) -> BoxFuture<'static, Result<PathBuf, SandboxError>>;

    /// Takes what has this name off the shelf, at once and whole. Right before, [`Consent::take`] must be asked, and when that says no,
    /// it stays. What is not there is off already. A withdrawal that was dropped after its consent was taken is over before
    /// anything else appears under the name.
    ///
    /// # Errors
    /// As for [`crate::Executor::withdraw`]. After a consent that was refused, any.
    fn withdraw(
        &self,
        shelf: Shelf,
        name: String,
        consent: Consent,
    ) -> BoxFuture<'static, Result<(), SandboxError>>;
}

/// Whether something is still wanted: decided once, either by who does it or by who calls it off, whoever is first. So
/// what was called off does not appear, and what appeared is never told to be called off. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Consent(Arc<AtomicU8>);

const OPEN: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Consent {
    /// Whether it is still wanted. If so it cannot be called off any more.
    #[must_use]
    pub fn take(&self) -> bool {
        self.decide(TAKEN)
    }

    /// Calls it off. Whether that was in time.
    #[must_use]
    pub fn withdraw(&self) -> bool {
        self.decide(WITHDRAWN)
    }

    fn decide(&self, decision: u8) -> bool {
        let decided = self.0.compare_exchange(OPEN, decision, Ordering::AcqRel, Ordering::Acquire);
        decided.is_ok() || decided == Err(decision)
    }
}

/// Calls it off when whoever waits does not wait any more.
#[derive(Debug)]
pub(crate) struct WithdrawOnDrop(pub(crate) Consent);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        // Too late is no failure.
        let _ = self.0.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consent_is_decided_once() {
        let consent = Consent::default();
        assert!(consent.take() && consent.clone().take());
        assert!(!consent.withdraw());
        let consent = Consent::default();
        drop(WithdrawOnDrop(consent.clone()));
        assert!(!consent.take() && consent.withdraw());
    }
}
