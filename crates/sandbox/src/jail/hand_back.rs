//! Taking back what was handed over to a jail's user, where a file system cannot show the host's files as somebody
//! else's.
//!
//! A host that crashes leaves its folders with the jail's user, who is nobody else's; the next jail in such a folder
//! takes them back first.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_guest::protocol::{BecomeUser, Bind, Owner, PlaceKind, TakeBack, WhichFiles};
use futures_util::future::BoxFuture;

use super::identity::Runner;
use crate::connector::Follower;
use crate::error::SandboxError;
use crate::guest_process::{own, text};

/// What is to be taken back of one jail.
#[derive(Debug, Default)]
pub(crate) struct HandedOver {
    /// What may be handed over, by the host's path.
    possible: BTreeMap<String, TakeBack>,
    due: Due,
}

/// What is to be taken back, of folders that may move meanwhile. Clones are the same.
#[derive(Debug, Clone, Default)]
struct Due(Arc<Mutex<Vec<TakeBack>>>);

impl Due {
    fn lock(&self) -> MutexGuard<'_, Vec<TakeBack>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows one folder that was handed over, or not.
#[derive(Debug)]
struct HandedFolder {
    due: Due,
    folder: Mutex<String>,
}

impl Follower for HandedFolder {
    fn moved(&self, to: &Path) -> Result<(), SandboxError> {
        let to = text(to)?;
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        for due in self.due.lock().iter_mut().filter(|due| due.folder == *folder) {
            due.folder.clone_from(&to);
        }
        *folder = to;
        Ok(())
    }

    fn hand_over(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async {
            let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let due = self.due.lock().iter().find(|due| due.folder == folder).cloned();
            match due {
                Some(back) => take_back(&the_other_way(&back)).await,
                // Its files are shown as the sandbox's user's, or are that user's.
                None => Ok(()),
            }
        })
    }
}

/// Handing over what is to be taken back so. What has other names stays whose it is.
fn the_other_way(back: &TakeBack) -> TakeBack {
    TakeBack {
        folder: back.folder.clone(),
        from: back.uid,
        uid: back.from,
        gid: back.from,
        which: WhichFiles::OfOneName,
    }
}

impl HandedOver {
    /// What the guest may hand over of these places, and the output folder, when it makes the jail.
    pub(crate) fn of<'a>(
        runner: Runner,
        places: impl IntoIterator<Item = &'a PlaceKind>,
        output: Option<(&str, Owner)>,
    ) -> Self {
        let BecomeUser::Dedicated(from) = runner.identity().become_user else { return Self::default() };
        let bound = places.into_iter().filter_map(|is| match is {
            PlaceKind::Bind(Bind { source, owner, .. }) => Some((source.as_str(), *owner)),
            _ => None,
        });
        let possible = bound.chain(output).filter_map(|(source, owner)| match owner {
            Owner::Mapped { uid, gid } => {
                let which = WhichFiles::All;
                Some((source.to_owned(), TakeBack { folder: source.to_owned(), from, uid, gid, which }))
            }
            Owner::Kept => None,
        });
        Self { possible: possible.collect(), due: Due::default() }
    }

    /// The host's paths of what may be handed over.
    #[cfg(feature = "docker")]
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        self.possible.keys().map(String::as_str)
    }

    /// The guest says that it handed these paths over.
    pub(crate) fn remember<'a>(&mut self, paths: impl IntoIterator<Item = &'a String>) {
        self.due.lock().extend(paths.into_iter().filter_map(|path| self.possible.get(path).cloned()));
    }

    /// Follows this one of the folders, by the host's path, when it is moved.
    pub(crate) fn follower(&self, folder: &str) -> Arc<dyn Follower> {
        Arc::new(HandedFolder { due: self.due.clone(), folder: Mutex::new(folder.to_owned()) })
    }

    /// Hands everything over, for a sandbox that its guest does not make itself.
    #[cfg(feature = "docker")]
    pub(crate) async fn hand_over(&mut self) -> Result<(), SandboxError> {
        for back in self.possible.values() {
            // Also what was handed over by half is taken back.
            self.due.lock().push(back.clone());
            take_back(&the_other_way(back)).await?;
        }
        Ok(())
    }

    /// Takes everything back, once. Nothing may run in the jail any more.
    pub(crate) async fn take_back(&mut self) {
        loop {
            let Some(next) = self.due.lock().last().cloned() else { return };
            if let Err(error) = take_back(&next).await {
                tracing::warn!(%error, folder = next.folder, "files of a sandbox stay with its user");
            }
            self.due.lock().pop();
        }
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        for left in self.due.lock().iter() {
            tracing::warn!(
                folder = left.folder,
                "files of a sandbox stay with its user, until its folder is used again"
            );
        }
    }
}

/// Has a process change the owners, beneath the folder's handle and through no link.
pub(crate) async fn take_back(what: &TakeBack) -> Result<(), SandboxError> {
    own(serde_json::to_vec(what).unwrap_or_default()).await
}
