//! The one thread that writes.
//!
//! State: the connection, and the calls of the present group. When the process dies, SQLite's log holds every group that
//! was acknowledged; the group in between is there as a whole, or not. When the thread ends by a defect, the callers of
//! its group and of all that wait hear `Lost`.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::blobs::Blobs;
use super::fault::{Failure, of_sqlite};
use super::garbage::Left;
use super::job::{Company, Job};
use super::open;
use super::options::SqliteOptions;
use super::queue::{Queue, WhenEmpty};
use super::tables::Tables;
use crate::error::{JournalError, JournalErrorKind};

pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteOptions,
    pub(crate) queue: Arc<Queue<Box<dyn Job>>>,
    pub(crate) blobs: Arc<Blobs>,
    /// `None` after it failed in a way that leaves doubt about it: it is opened again for the next group.
    pub(crate) connection: Option<Connection>,
    /// Whether deletions may have left something.
    pub(crate) garbage: Left,
}

impl Writer {
    /// Writes until the queue is closed and empty. Gives the connection back.
    pub(crate) fn run(mut self) -> Option<Connection> {
        loop {
            let when_empty = match self.garbage {
                Left::Something => WhenEmpty::Return,
                Left::Nothing => WhenEmpty::Wait,
            };
            let Some(group) = self.queue.take(self.options.group, when_empty) else { return self.connection };
            if !group.is_empty() {
                self.write(group);
            }
            if self.garbage == Left::Something {
                self.remove_garbage();
            }
        }
    }

    /// Carries out a group in one transaction, but for the jobs that want one of their own.
    fn write(&mut self, taken: Vec<Box<dyn Job>>) {
        let mut group = Vec::with_capacity(taken.len());
        for job in taken {
            match job.company() {
                Company::Any => group.push(job),
                Company::None => {
                    self.write_group(std::mem::take(&mut group));
                    self.write_one(job);
                }
            }
        }
        self.write_group(group);
    }

    /// When the transaction fails each job gets one of its own, so that none fails for another's sake.
    fn write_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        if group.is_empty() {
            return;
        }
        let end = self.transaction(|tables| group.iter_mut().try_for_each(|job| job.run(tables)));
        match end {
            Err(error) if group.len() > 1 && is_of_one(&error) => {
                group.into_iter().for_each(|job| self.write_one(job));
            }
            end => group.into_iter().for_each(|job| job.settle(end.clone())),
        }
    }

    fn write_one(&mut self, mut job: Box<dyn Job>) {
        let end = self.transaction(|tables| job.run(tables));
        job.settle(end);
    }

    /// Does something in a transaction that is durable when this returns well.
    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Tables<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, JournalError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open::writer(&self.path, &self.options)?,
        };
        let result = self.transact(&mut connection, work);
        let result = result.map_err(|error| of_sqlite(&error, &self.path));
        // What a failed write or flush has left in the connection is not relied on.
        let is_doubtful = result.as_ref().is_err_and(|error: &JournalError| {
            matches!(error.kind(), JournalErrorKind::Io | JournalErrorKind::Corrupt)
        });
        if !is_doubtful {
            self.connection = Some(connection);
        }
        result
    }

    fn transact<T>(
        &mut self,
        connection: &mut Connection,
        work: impl FnOnce(&Tables<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let tables = Tables::new(&transaction, &self.blobs, self.options.blob_threshold);
        let value = work(&tables)?;
        let has_deleted = tables.has_deleted();
        transaction.commit()?;
        if has_deleted {
            self.garbage = Left::Something;
        }
        Ok(value)
    }

    /// Removes some of what deletions left. What cannot be removed now is tried again after the next deletion, or when
    /// the journal is opened again.
    fn remove_garbage(&mut self) {
        let mut refused = None;
        let removed = self.transaction(|tables| match tables.remove_garbage() {
            Ok(left) => Ok(left),
            Err(Failure::Broken(error)) => Err(error),
            Err(Failure::Refused(error)) => {
                refused = Some(error);
                Ok(Left::Nothing)
            }
        });
        self.garbage = *removed.as_ref().unwrap_or(&Left::Nothing);
        if let Some(error) = refused.or(removed.err()) {
            tracing::warn!(%error, "what deleted sessions left could not be removed; it is tried again later");
        }
    }
}

/// Whether a failure may be one call's alone.
fn is_of_one(error: &JournalError) -> bool {
    matches!(error.kind(), JournalErrorKind::DiskFull | JournalErrorKind::Corrupt)
}
