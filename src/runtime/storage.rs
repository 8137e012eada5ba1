//! The journal of a runtime: in the data folder, or in memory.
//!
//! State: the journal that is open. What was acknowledged is on the disk; in memory, it is gone with the process.

use std::path::Path;
use std::sync::Arc;

use conjure_actors::journal::OpenJournal;
use conjure_journal::{Journal, MemoryJournal};
use futures_util::FutureExt as _;

#[cfg(feature = "sqlite")]
use super::disk::Disk;
use super::error::RuntimeError;
use super::options::RuntimeOptions;

/// The journal, to be opened, opened anew, and closed.
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

    /// Opens the journal, also anew.
    pub(crate) fn opener(&self) -> Arc<OpenJournal> {
        match self {
            Self::Memory(journal) => {
                let journal = journal.clone();
                Arc::new(move || {
                    let journal = journal.clone();
                    async move { Ok(Arc::new(journal) as Arc<dyn Journal>) }.boxed()
                })
            }
            #[cfg(feature = "sqlite")]
            Self::Disk(disk) => {
                let disk = disk.clone();
                Arc::new(move || disk.next())
            }
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
