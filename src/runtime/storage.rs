//! The journal of a runtime: in the data folder, or in memory.
//!
//! State: the journal that is open. What was acknowledged is on the disk; in memory, it is gone with the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_actors::journal::OpenJournal;
use conjure_journal::{Journal, JournalError, MemoryJournal, Weights};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

#[cfg(feature = "sqlite")]
use super::disk::Disk;
use super::error::RuntimeError;
use super::options::RuntimeOptions;

/// The journal, to be opened, opened anew, and closed. Clones are the same.
#[derive(Clone)]
pub(crate) enum Storage {
    Memory(MemoryJournal),
    #[cfg(feature = "sqlite")]
    Disk(Disk),
}

impl Storage {
    /// In this folder; it is open then.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn on_disk(folder: &Path, options: &RuntimeOptions) -> Result<Self, RuntimeError> {
        Ok(Self::Disk(Disk::open(folder, options.journal.clone()).await?))
    }

    #[cfg(not(feature = "sqlite"))]
    pub(crate) async fn on_disk(folder: &Path, _: &RuntimeOptions) -> Result<Self, RuntimeError> {
        Err(RuntimeError::NoJournal { path: folder.to_owned() })
    }

    /// Opens the journal, also anew: tenants have their part of it by these weights each time.
    pub(crate) fn opener(&self, weights: &Weights) -> Arc<OpenJournal> {
        let (storage, weights) = (self.clone(), weights.clone());
        Arc::new(move || {
            let (opening, weights) = (storage.next(), weights.clone());
            async move {
                let journal = opening.await?;
                journal.set_weights(weights);
                Ok(journal)
            }
            .boxed()
        })
    }

    /// The journal that is to be used next.
    fn next(&self) -> BoxFuture<'static, Result<Arc<dyn Journal>, JournalError>> {
        match self {
            Self::Memory(journal) => {
                let journal: Arc<dyn Journal> = Arc::new(journal.clone());
                std::future::ready(Ok(journal)).boxed()
            }
            #[cfg(feature = "sqlite")]
            Self::Disk(disk) => disk.next(),
        }
    }

    /// The folder of the folders in which tenants' large bodies lie, where anything lies on the disk.
    pub(crate) fn bodies(&self) -> Option<PathBuf> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Disk(disk) => Some(disk.bodies()),
        }
    }

    /// Resolves when all that was accepted is on the disk, and the files are closed.
    pub(crate) async fn close(&self) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "sqlite")]
            Self::Disk(disk) => disk.close().await,
        }
    }
}
