//! [`OwnershipTransfer`]: changes the owner of host directories to the user of a sandbox and back, where a file system
//! cannot map owners in a mount.
//!
//! After a crash of the host process, the directories still belong to the sandbox's user. That user owns nothing else,
//! and the next sandbox in such a directory first restores the owner.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::lock;
use conjure_guest::protocol::{BecomeUser, Bind, ChownRequest, FileSelection, MountKind, OwnerMapping};
use futures_util::future::BoxFuture;

use super::user::JailUser;
use crate::connector::WorkspaceListener;
use crate::error::SandboxError;
use crate::guest_process::{run_chown_helper, utf8_path};

/// The ownership changes of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct OwnershipTransfer {
    /// The possible changes, by path on the host.
    possible: BTreeMap<String, ChownRequest>,
    pending: PendingChowns,
}

/// The changes to undo. A directory may be renamed meanwhile. Clones share the list.
#[derive(Debug, Clone, Default)]
struct PendingChowns(Arc<Mutex<Vec<ChownRequest>>>);

impl PendingChowns {
    fn lock(&self) -> MutexGuard<'_, Vec<ChownRequest>> {
        lock(&self.0)
    }
}

/// Follows the renames of one directory, whether its owner was changed or not.
#[derive(Debug)]
struct TransferredDir {
    pending: PendingChowns,
    dir: Mutex<String>,
}

impl WorkspaceListener for TransferredDir {
    fn on_moved(&self, to: &Path) -> Result<(), SandboxError> {
        let to = utf8_path(to)?;
        let mut dir = lock(&self.dir);
        for pending in self.pending.lock().iter_mut().filter(|pending| pending.dir == *dir) {
            pending.dir.clone_from(&to);
        }
        *dir = to;
        Ok(())
    }

    fn chown_new_files(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async {
            let dir = lock(&self.dir).clone();
            let pending = self.pending.lock().iter().find(|pending| pending.dir == dir).cloned();
            match pending {
                Some(back) => run_chown(&reversed(&back)).await,
                // The mount maps the owner, or the files already belong to the sandbox's user. So nothing must be
                // changed.
                None => Ok(()),
            }
        })
    }
}

/// Returns the request that reverses `back`. A file with further hard links keeps its owner.
fn reversed(back: &ChownRequest) -> ChownRequest {
    ChownRequest {
        dir: back.dir.clone(),
        from: back.uid,
        uid: back.from,
        gid: back.from,
        selection: FileSelection::SingleLink,
    }
}

impl OwnershipTransfer {
    /// The changes that the guest may make when it sets up the jail, for these mounts and the output directory.
    pub(crate) fn from_mounts<'a>(
        runner: JailUser,
        mounts: impl IntoIterator<Item = &'a MountKind>,
        output: Option<(&str, OwnerMapping)>,
    ) -> Self {
        let BecomeUser::Dedicated(from) = runner.identity().become_user else { return Self::default() };
        let bound = mounts.into_iter().filter_map(|is| match is {
            MountKind::Bind(Bind { source, owner, .. }) => Some((source.as_str(), *owner)),
            _ => None,
        });
        let possible = bound.chain(output).filter_map(|(source, owner)| match owner {
            OwnerMapping::Mapped { uid, gid } => {
                let which = FileSelection::All;
                Some((
                    source.to_owned(),
                    ChownRequest { dir: source.to_owned(), from, uid, gid, selection: which },
                ))
            }
            OwnerMapping::Unchanged => None,
        });
        Self { possible: possible.collect(), pending: PendingChowns::default() }
    }

    /// The paths of the possible changes on the host.
    #[cfg(feature = "docker")]
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.possible.keys().map(String::as_str)
    }

    /// Records the changes that the guest reports.
    pub(crate) fn remember<'a>(&mut self, paths: impl IntoIterator<Item = &'a String>) {
        self.pending.lock().extend(paths.into_iter().filter_map(|path| self.possible.get(path).cloned()));
    }

    /// A listener for the renames of this directory, by its path on the host.
    pub(crate) fn workspace_listener(&self, dir: &str) -> Arc<dyn WorkspaceListener> {
        Arc::new(TransferredDir { pending: self.pending.clone(), dir: Mutex::new(dir.to_owned()) })
    }

    /// Makes all changes, for a sandbox that is not set up by its guest.
    #[cfg(feature = "docker")]
    pub(crate) async fn transfer(&mut self) -> Result<(), SandboxError> {
        for back in self.possible.values() {
            // Recorded first, so that a change that fails half way is undone, too.
            self.pending.lock().push(back.clone());
            run_chown(&reversed(back)).await?;
        }
        Ok(())
    }

    /// Undoes all changes, once. No process may run in the sandbox any more.
    pub(crate) async fn restore(&mut self) {
        loop {
            let Some(next) = self.pending.lock().last().cloned() else { return };
            if let Err(error) = run_chown(&next).await {
                tracing::warn!(%error, dir = next.dir, "files of a sandbox keep its user as their owner");
            }
            self.pending.lock().pop();
        }
    }
}

impl Drop for OwnershipTransfer {
    fn drop(&mut self) {
        for left in self.pending.lock().iter() {
            tracing::warn!(
                dir = left.dir,
                "files of a sandbox stay with its user, until its directory is used again"
            );
        }
    }
}

/// Runs a process that changes the owners, beneath the handle of the directory and through no link.
pub(crate) async fn run_chown(what: &ChownRequest) -> Result<(), SandboxError> {
    run_chown_helper(serde_json::to_vec(what).unwrap_or_default()).await
}
