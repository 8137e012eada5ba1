//! The one thread that writes.
//!
//! State: the connection, and the calls of the present group. When the process dies, SQLite's log holds every group that
//! was acknowledged; the group in between is there as a whole, or not. When the thread ends by a defect, the callers of
//! its group and of all that wait hear `Lost`.
//!
//! Nothing is acknowledged that a restart would not find: where the database was removed, moved or replaced, calls fail as
//! `Displaced` until it is back. A log that was removed is merged into the database by whoever has it still open, this
//! writer, and another one is begun.

use std::sync::Arc;

use rusqlite::TransactionBehavior;

use super::blobs::Blobs;
use super::fault::{Failure, of_sqlite};
use super::garbage::Left;
use super::job::{Company, Job};
use super::open::{self, Opened, Writable};
use super::options::SqliteOptions;
use super::queue::{Group, Queue, WhenEmpty};
use super::site::Site;
use super::tables::Tables;
use crate::error::{JournalError, JournalErrorKind};

pub(crate) struct Writer {
    pub(crate) site: Arc<Site>,
    pub(crate) options: SqliteOptions,
    pub(crate) queue: Arc<Queue<Box<dyn Job>>>,
    pub(crate) blobs: Arc<Blobs>,
    /// `None` after it failed in a way that leaves doubt about it: it is opened again for the next group.
    pub(crate) open: Option<Writable>,
    /// Whether deletions may have left something.
    pub(crate) garbage: Left,
}

impl Writer {
    /// Writes until the queue is closed and empty. Gives the connection back.
    pub(crate) fn run(mut self) -> Option<Opened> {
        let most = Group { calls: self.options.group, bytes: self.options.group_bytes };
        loop {
            let when_empty = match self.garbage {
                Left::Something => WhenEmpty::Return,
                Left::Nothing => WhenEmpty::Wait,
            };
            let Some(group) = self.queue.take(most, when_empty) else {
                return self.open.map(|open| open.connection);
            };
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

    /// Does something in a transaction that is durable, and found by whoever opens the journal next, when this returns well.
    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Tables<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, JournalError> {
        self.open_log()?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let known = *self.site.reading();
                if self.site.has_lost(known)? {
                    // It has no log open, and those who read have the one that lost its name: all of them close it, so that it is
                    // merged, and the journal is opened anew.
                    std::panic::resume_unwind(Box::new("its log is not where it was"));
                }
                let open = open::writer(&self.site, &self.options)?;
                self.site.mending().set(open.log);
                open
            }
        };
        let result = self.transact(&mut open, work).map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::Broken(error) => self.site.explain(of_sqlite(&error, self.site.database())),
        });
        // What a failed write or flush has left in the connection is not relied on.
        let is_doubtful = result.as_ref().is_err_and(|error: &JournalError| {
            matches!(error.kind(), JournalErrorKind::Io | JournalErrorKind::Corrupt)
        });
        if is_doubtful {
            return result;
        }
        self.open = Some(open);
        let value = result?;
        self.site.check()?;
        let displaced = self.open.as_ref().and_then(|open| self.site.check_log(open.log).err());
        // It is recorded, though it may not be found: whatever is in the way of that, nobody is to do it again.
        self.open_log().map_err(|error| displaced.unwrap_or(error))?;
        Ok(value)
    }

    fn transact<T>(
        &mut self,
        open: &mut Writable,
        work: impl FnOnce(&Tables<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, Failure> {
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Nobody else writes now: another process that puts the log right has done so, or will.
        self.site.check()?;
        self.site.check_log(open.log)?;
        let tables = Tables::new(&transaction, &self.blobs, self.options.blob_threshold);
        let value = work(&tables)?;
        let has_deleted = tables.has_deleted();
        transaction.commit()?;
        if has_deleted {
            self.garbage = Left::Something;
        }
        Ok(value)
    }

    /// Makes sure that the log that is open has its name. One that has lost it is put right.
    fn open_log(&mut self) -> Result<(), JournalError> {
        let Some(open) = &self.open else { return Ok(()) };
        let displaced = match self.site.check_log(open.log) {
            Ok(()) => return Ok(()),
            Err(displaced) => displaced,
        };
        // Moved together with the database, it comes back with it.
        self.site.check()?;
        tracing::warn!(%displaced, "the journal's log is merged into its database, and begun anew");
        let site = Arc::clone(&self.site);
        let mut open_log = site.mending();
        match open::merge_log(&open.connection, site.database()) {
            // It holds less than it should when another process has put it right before, and emptied it.
            Ok(()) | Err(JournalError::Corrupt { .. }) => {}
            Err(error) => return Err(site.explain(error)),
        }
        let open = open::writer(&site, &self.options)?;
        // What somebody has put there is older than what was merged.
        open::merge_log(&open.connection, site.database()).map_err(|error| site.explain(error))?;
        if let Some(folder) = site.database().parent() {
            open::sync_folder(folder)?;
        }
        // Connections that read have the old log open, too.
        open_log.set(open.log);
        self.open = Some(open);
        Ok(())
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
