//! The journal on the disk, in the data folder.
//!
//! State: the journal that is open, and before that the one that was opened first. What was acknowledged is on the disk. When the
//! journal is lost the same database is opened again: one that is gone is waited for, and never made anew.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_journal::{Journal, JournalError, SqliteJournal, SqliteOptions};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Opens the journal of a folder, and closes it. Clones are the same.
#[derive(Clone)]
pub(super) struct Disk {
    folder: PathBuf,
    slot: Arc<Mutex<Slot>>,
}

/// What was opened last.
#[derive(Clone)]
enum Slot {
    /// Nobody has taken it yet.
    Fresh(SqliteJournal),
    Used(SqliteJournal),
}

impl Disk {
    /// Opens it, so that what is wrong with it is known by its type. The tree begins with what is open by then.
    pub(super) async fn open(folder: &Path, options: SqliteOptions) -> Result<Self, JournalError> {
        let of = folder.to_owned();
        let first = blocking(folder, move || SqliteJournal::open(&of, options)).await?;
        Ok(Self { folder: folder.to_owned(), slot: Arc::new(Mutex::new(Slot::Fresh(first))) })
    }

    /// The journal that was opened first, and anew after that.
    pub(super) fn next(&self) -> BoxFuture<'static, Result<Arc<dyn Journal>, JournalError>> {
        let disk = self.clone();
        async move {
            let last = disk.slot().clone();
            let journal = match last {
                Slot::Fresh(journal) => journal,
                Slot::Used(lost) => {
                    // Whoever reads still has the log open that was written last, whatever became of its name: the last one to close
                    // it merges it.
                    lost.close().await;
                    blocking(&disk.folder, move || lost.open_again()).await?
                }
            };
            *disk.slot() = Slot::Used(journal.clone());
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        }
        .boxed()
    }

    /// The folder of the folders in which tenants' large bodies lie.
    pub(super) fn bodies(&self) -> PathBuf {
        SqliteJournal::bodies(&self.folder)
    }

    /// Resolves when all that was accepted is on the disk, and the files are closed.
    pub(super) async fn close(&self) {
        let (Slot::Fresh(journal) | Slot::Used(journal)) = self.slot().clone();
        journal.close().await;
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn blocking(
    folder: &Path,
    open: impl FnOnce() -> Result<SqliteJournal, JournalError> + Send + 'static,
) -> Result<SqliteJournal, JournalError> {
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or_else(|error| {
        let reason = format!("its opening broke off: {error}");
        Err(JournalError::Io { doing: "open", path: folder.to_owned(), reason })
    })
}
