//! The reader threads.
//!
//! State: one connection each. They change nothing, so a crash loses nothing.

use std::sync::Arc;

use conjure_base::FileId;

use super::options::SqliteOptions;
use crate::error::JournalError;
use crate::sqlite::database::database_files::DatabaseFiles;
use crate::sqlite::database::error_map::map_sqlite_error;
use crate::sqlite::database::open::{self, ConnectionGuard};
use crate::sqlite::queue::call_queue::{BatchLimits, CallQueue, OnEmpty};
use crate::sqlite::queue::job::QueuedCall;
use crate::sqlite::statements::blobs::BlobStores;
use crate::sqlite::statements::transaction::Tx;

pub(crate) struct Reader {
    pub(crate) files: Arc<DatabaseFiles>,
    pub(crate) options: SqliteOptions,
    pub(crate) queue: Arc<CallQueue<Box<dyn QueuedCall>>>,
    pub(crate) blobs: Arc<BlobStores>,
    /// `None` after a failure; it is reopened for the next call.
    pub(crate) connection: Option<ConnectionGuard>,
    /// The WAL that it has open.
    pub(crate) wal: FileId,
}

impl Reader {
    /// Reads until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        // The size of a read is not known in advance, so each call is its own batch.
        let one = BatchLimits { calls: 1, bytes: usize::MAX };
        while let Some(jobs) = self.queue.take(one, OnEmpty::Wait) {
            for mut job in jobs.into_iter().filter(|job| !job.is_abandoned()) {
                let end = self.read(job.as_mut());
                job.complete(end);
            }
        }
    }

    fn read(&mut self, job: &mut dyn QueuedCall) -> Result<(), JournalError> {
        let files = Arc::clone(&self.files);
        let wal = files.read_wal();
        let connection = match self.connection.take() {
            Some(connection) if self.wal == *wal => connection,
            _ => open::open_reader(&files, *wal, &self.options)?,
        };
        self.wal = *wal;
        let end = job.run(&Tx::new(&connection, &self.blobs, self.options.blob_threshold));
        // Large bodies are beside the database. If it was moved away, they only seem to be missing.
        files.check()?;
        end.map_err(|error| map_sqlite_error(&error, files.database()))?;
        self.connection = Some(connection);
        Ok(())
    }
}
