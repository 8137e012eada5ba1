//! Opens, reopens and closes the journal of a runtime: in the data directory, or in memory.
//!
//! State: the open journal. Acknowledged events are on the disk; a journal in memory ends with the process.
//!
//! When a journal on the disk fails, the same database is opened again. If the database has disappeared, the runtime
//! waits for it and never creates a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "sqlite")]
use conjure_base::lock;
#[cfg(feature = "sqlite")]
use std::sync::{Mutex, MutexGuard};

use conjure_actors::journal::OpenJournal;
use conjure_journal::{Journal, JournalError, MemoryJournal, TenantWeights};
#[cfg(feature = "sqlite")]
use conjure_journal::{SqliteJournal, SqliteOptions};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::options::RuntimeOptions;

/// The journal of a runtime. Clones share it.
#[derive(Clone)]
pub(crate) enum JournalStorage {
    Memory(MemoryJournal),
    #[cfg(feature = "sqlite")]
    Disk(DiskJournal),
}

impl JournalStorage {
    /// Opens the journal in this directory.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn on_disk(dir: &Path, options: &RuntimeOptions) -> Result<Self, RuntimeError> {
        Ok(Self::Disk(DiskJournal::open(dir, options.journal.clone()).await?))
    }

    #[cfg(not(feature = "sqlite"))]
    pub(crate) async fn on_disk(dir: &Path, _: &RuntimeOptions) -> Result<Self, RuntimeError> {
        Err(RuntimeError::NoJournal { path: dir.to_owned() })
    }

    /// A function that opens the journal, and opens it again after a failure. Each opened journal shares its writes
    /// among tenants by these weights.
    pub(crate) fn opener(&self, weights: &TenantWeights) -> Arc<OpenJournal> {
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

    /// Returns the journal to use next.
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

    /// The directory that has one directory of large bodies for each tenant; `None` for a journal in memory.
    pub(crate) fn blobs_dir(&self) -> Option<PathBuf> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "sqlite")]
            Self::Disk(disk) => Some(SqliteJournal::blobs_dir(&disk.dir)),
        }
    }

    /// Resolves when all accepted events are on the disk and the files are closed.
    pub(crate) async fn close(&self) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "sqlite")]
            Self::Disk(disk) => disk.close().await,
        }
    }
}

/// The SQLite journal in a directory. Clones share it.
#[cfg(feature = "sqlite")]
#[derive(Clone)]
pub(crate) struct DiskJournal {
    dir: PathBuf,
    slot: Arc<Mutex<JournalSlot>>,
}

/// The journal that was opened last.
#[cfg(feature = "sqlite")]
#[derive(Clone)]
enum JournalSlot {
    /// The first journal, which the actors have not received yet.
    Fresh(SqliteJournal),
    Used(SqliteJournal),
}

#[cfg(feature = "sqlite")]
impl DiskJournal {
    /// Opens the first journal, with which the actors start. Opening it here reports an error with its type.
    async fn open(dir: &Path, options: SqliteOptions) -> Result<Self, JournalError> {
        let path = dir.to_owned();
        let first = open_blocking(dir, move || SqliteJournal::open(&path, options)).await?;
        Ok(Self { dir: dir.to_owned(), slot: Arc::new(Mutex::new(JournalSlot::Fresh(first))) })
    }

    /// Returns the first journal. Each later call opens the same database again.
    fn next(&self) -> BoxFuture<'static, Result<Arc<dyn Journal>, JournalError>> {
        let disk = self.clone();
        async move {
            let last = disk.slot().clone();
            let journal = match last {
                JournalSlot::Fresh(journal) => journal,
                JournalSlot::Used(lost) => {
                    // Readers still have the write-ahead log open, even if the file is deleted. The last reader that
                    // closes it merges it into the database.
                    lost.close().await;
                    open_blocking(&disk.dir, move || lost.reopen()).await?
                }
            };
            *disk.slot() = JournalSlot::Used(journal.clone());
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        }
        .boxed()
    }

    async fn close(&self) {
        let (JournalSlot::Fresh(journal) | JournalSlot::Used(journal)) = self.slot().clone();
        journal.close().await;
    }

    fn slot(&self) -> MutexGuard<'_, JournalSlot> {
        lock(&self.slot)
    }
}

#[cfg(feature = "sqlite")]
async fn open_blocking(
    dir: &Path,
    open: impl FnOnce() -> Result<SqliteJournal, JournalError> + Send + 'static,
) -> Result<SqliteJournal, JournalError> {
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or_else(|error| {
        let reason = format!("its opening was interrupted: {error}");
        Err(JournalError::Io { doing: "open", path: dir.to_owned(), reason })
    })
}
