//! The journal on the disk, in the data folder.
//!
//! State: the journal that is open, and before that the one that was opened first. What was acknowledged is on the disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_journal::{Journal, JournalError, SqliteJournal, SqliteOptions};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Opens the journal of a folder, and closes it. Clones are the same.
#[derive(Clone)]
pub(super) struct Disk {
    folder: PathBuf,
    options: SqliteOptions,
    slot: Arc<Mutex<Slot>>,
}

/// What was opened.
#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    /// Nobody has taken it yet.
    Fresh(SqliteJournal),
    Used(SqliteJournal),
}

impl Disk {
    /// Opens it, so that what is wrong with it is known by its type. The tree begins with what is open by then.
    pub(super) async fn open(folder: &Path, options: SqliteOptions) -> Result<Self, JournalError> {
        let disk = Self { folder: folder.to_owned(), options, slot: Arc::default() };
        let first = disk.sqlite().await?;
        disk.put(Slot::Fresh(first));
        Ok(disk)
    }

    /// The journal that was opened first, and anew after that.
    pub(super) fn next(&self) -> BoxFuture<'static, Result<Arc<dyn Journal>, JournalError>> {
        let disk = self.clone();
        async move {
            let journal = match disk.put(Slot::Empty) {
                Slot::Fresh(journal) => journal,
                _ => disk.sqlite().await?,
            };
            disk.put(Slot::Used(journal.clone()));
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        }
        .boxed()
    }

    /// Resolves when all that was accepted is on the disk, and the files are closed.
    pub(super) async fn close(&self) {
        if let Slot::Fresh(journal) | Slot::Used(journal) = self.put(Slot::Empty) {
            journal.close().await;
        }
    }

    fn put(&self, slot: Slot) -> Slot {
        std::mem::replace(&mut *self.slot.lock().unwrap_or_else(PoisonError::into_inner), slot)
    }

    async fn sqlite(&self) -> Result<SqliteJournal, JournalError> {
        let (folder, options) = (self.folder.clone(), self.options.clone());
        let opened = tokio::task::spawn_blocking(move || SqliteJournal::open(&folder, options)).await;
        opened.unwrap_or_else(|error| {
            let reason = format!("its opening broke off: {error}");
            Err(JournalError::Io { doing: "open", path: self.folder.clone(), reason })
        })
    }
}
