//! The writer thread.
//! State: the connection, and the calls of the current batch. If the process dies, the WAL has every acknowledged batch; the current one is
//! complete or absent. If the thread panics, all waiting callers get `Lost`.
//! The writer acknowledges only what a restart would find. If the database was removed, moved or replaced, calls fail as `DatabaseMoved`
//! until it is back. If only the WAL was removed, the writer, which still has it open, merges it into the database and starts a new one.

use std::sync::Arc;

use rusqlite::TransactionBehavior;

use super::options::SqliteOptions;
use crate::error::{JournalError, JournalErrorKind};
use crate::sqlite::database::database_files::DatabaseFiles;
use crate::sqlite::database::error_map::{TxError, map_sqlite_error};
use crate::sqlite::database::open::{self, ConnectionGuard, WriteConnection};
use crate::sqlite::queue::call_queue::{BatchLimits, CallQueue, OnEmpty};
use crate::sqlite::queue::job::{Batching, QueuedCall};
use crate::sqlite::statements::blobs::BlobStores;
use crate::sqlite::statements::garbage::MoreWork;
use crate::sqlite::statements::transaction::Tx;

pub(crate) struct Writer {
    pub(crate) files: Arc<DatabaseFiles>,
    pub(crate) options: SqliteOptions,
    pub(crate) queue: Arc<CallQueue<Box<dyn QueuedCall>>>,
    pub(crate) blobs: Arc<BlobStores>,
    /// `None` after an error that may have left it in a bad state. It is then reopened for the next batch.
    pub(crate) open: Option<WriteConnection>,
    /// Whether there may be garbage of deletions.
    pub(crate) garbage: MoreWork,
}

impl Writer {
    /// Writes until the queue is closed and empty. Returns the connection.
    pub(crate) fn run(mut self) -> Option<ConnectionGuard> {
        let limits = BatchLimits { calls: self.options.batch, bytes: self.options.batch_bytes };
        loop {
            let when_empty = match self.garbage {
                MoreWork::Yes => OnEmpty::Return,
                MoreWork::No => OnEmpty::Wait,
            };
            let Some(group) = self.queue.take(limits, when_empty) else {
                return self.open.map(|open| open.connection);
            };
            if !group.is_empty() {
                self.commit(group);
            }
            if self.garbage == MoreWork::Yes {
                self.remove_garbage();
            }
        }
    }

    /// Runs a batch in one transaction, except for the calls that need their own.
    fn commit(&mut self, jobs: Vec<Box<dyn QueuedCall>>) {
        let mut group = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job.batching() {
                Batching::Shared => group.push(job),
                Batching::Exclusive => {
                    self.commit_batch(std::mem::take(&mut group));
                    self.commit_single(job);
                }
            }
        }
        self.commit_batch(group);
    }

    /// Runs calls in one transaction. If it fails, each call is repeated in its own transaction, so that none fails because of another.
    fn commit_batch(&mut self, mut group: Vec<Box<dyn QueuedCall>>) {
        if group.is_empty() {
            return;
        }
        let result = self.transaction(|tx| group.iter_mut().try_for_each(|job| job.run(tx)));
        match result {
            Err(error) if group.len() > 1 && is_single_call_error(&error) => {
                group.into_iter().for_each(|job| self.commit_single(job));
            }
            result => group.into_iter().for_each(|job| job.complete(result.clone())),
        }
    }

    fn commit_single(&mut self, mut job: Box<dyn QueuedCall>) {
        let result = self.transaction(|tx| job.run(tx));
        job.complete(result);
    }

    /// Runs work in a transaction. On success it is durable, and the next process that opens the journal finds it.
    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, JournalError> {
        self.repair_wal()?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let known = *self.files.read_wal();
                if self.files.has_lost_wal(known)? {
                    // The writer has no WAL open, and the readers have the moved one. Reopening the journal closes and merges it.
                    std::panic::resume_unwind(Box::new("its WAL is not where it was"));
                }
                let open = open::open_writer(&self.files, &self.options)?;
                self.files.replace_wal().set(open.wal);
                open
            }
        };
        let result = self.run_transaction(&mut open, work).map_err(|failure| match failure {
            TxError::Rejected(error) => error,
            TxError::Database(error) => {
                self.files.moved_error(map_sqlite_error(&error, self.files.database()))
            }
        });
        // A failed write or flush may leave the connection in a bad state.
        let is_doubtful = result.as_ref().is_err_and(|error: &JournalError| {
            matches!(error.kind(), JournalErrorKind::Io | JournalErrorKind::Corrupt)
        });
        if is_doubtful {
            return result;
        }
        self.open = Some(open);
        let value = result?;
        self.files.check()?;
        let wal_error = self.open.as_ref().and_then(|open| self.files.check_wal(open.wal).err());
        // The transaction is committed, but a restart may not find it, so the caller gets the error and must not repeat it.
        self.repair_wal().map_err(|error| wal_error.unwrap_or(error))?;
        Ok(value)
    }

    fn run_transaction<T>(
        &mut self,
        open: &mut WriteConnection,
        work: impl FnOnce(&Tx<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, TxError> {
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // No other process writes during this transaction. So another process has either repaired the WAL already, or will do so
        // later.
        self.files.check()?;
        self.files.check_wal(open.wal)?;
        let tx = Tx::new(&transaction, &self.blobs, self.options.blob_threshold);
        let value = work(&tx)?;
        let has_deleted = tx.has_deleted();
        transaction.commit()?;
        if has_deleted {
            self.garbage = MoreWork::Yes;
        }
        Ok(value)
    }

    /// Checks that the open WAL is at its path. Repairs it if it was removed.
    fn repair_wal(&mut self) -> Result<(), JournalError> {
        let Some(open) = &self.open else { return Ok(()) };
        let wal_error = match self.files.check_wal(open.wal) {
            Ok(()) => return Ok(()),
            Err(wal_error) => wal_error,
        };
        // If the database was moved too, both come back together.
        self.files.check()?;
        tracing::warn!(displaced = %wal_error, "the journal's WAL was moved; merging it into the database and starting a new one");
        let files = Arc::clone(&self.files);
        let mut open_wal = files.replace_wal();
        match open::merge_wal(&open.connection, files.database()) {
            // Another process may have repaired and truncated it before.
            Ok(()) | Err(JournalError::Corrupt { .. }) => {}
            Err(error) => return Err(files.moved_error(error)),
        }
        let open = open::open_writer(&files, &self.options)?;
        // A file that was put at the path is older than the merged WAL.
        open::merge_wal(&open.connection, files.database()).map_err(|error| files.moved_error(error))?;
        if let Some(dir) = files.database().parent() {
            open::sync_dir(dir)?;
        }
        // Read connections still have the old WAL open.
        open_wal.set(open.wal);
        self.open = Some(open);
        Ok(())
    }

    /// Removes some garbage of deletions. A failure is retried after the next deletion, or when the journal is opened again.
    fn remove_garbage(&mut self) {
        let mut refused = None;
        let removed = self.transaction(|tx| match tx.remove_garbage() {
            Ok(left) => Ok(left),
            Err(TxError::Database(error)) => Err(error),
            Err(TxError::Rejected(error)) => {
                refused = Some(error);
                Ok(MoreWork::No)
            }
        });
        self.garbage = *removed.as_ref().unwrap_or(&MoreWork::No);
        if let Some(error) = refused.or(removed.err()) {
            tracing::warn!(%error, "the garbage of deleted sessions could not be removed; the writer retries later");
        }
    }
}

/// Whether a single call may have caused this failure.
fn is_single_call_error(error: &JournalError) -> bool {
    matches!(error.kind(), JournalErrorKind::DiskFull | JournalErrorKind::Corrupt)
}
