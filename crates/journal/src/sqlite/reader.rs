//! The threads that read, beside the writer.
//!
//! State: a connection each. They change nothing, so a crash does nothing to them.

use std::sync::Arc;

use super::blobs::Blobs;
use super::fault::of_sqlite;
use super::job::Job;
use super::open::{self, Opened};
use super::options::SqliteOptions;
use super::queue::{Group, Queue, WhenEmpty};
use super::site::{FileId, Site};
use super::tables::Tables;
use crate::error::JournalError;

pub(crate) struct Reader {
    pub(crate) site: Arc<Site>,
    pub(crate) options: SqliteOptions,
    pub(crate) queue: Arc<Queue<Box<dyn Job>>>,
    pub(crate) blobs: Arc<Blobs>,
    /// `None` after it failed: it is opened again for the next call.
    pub(crate) connection: Option<Opened>,
    /// The log that it has open.
    pub(crate) log: FileId,
}

impl Reader {
    /// Reads until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        // What a call will have read is not known before, so each counts the same.
        let one = Group { calls: 1, bytes: usize::MAX };
        while let Some(jobs) = self.queue.take(one, WhenEmpty::Wait) {
            for mut job in jobs.into_iter().filter(|job| !job.is_abandoned()) {
                let end = self.read(job.as_mut());
                job.settle(end);
            }
        }
    }

    fn read(&mut self, job: &mut dyn Job) -> Result<(), JournalError> {
        let site = Arc::clone(&self.site);
        let log = site.reading();
        let connection = match self.connection.take() {
            Some(connection) if self.log == *log => connection,
            _ => open::reader(&site, *log, &self.options)?,
        };
        self.log = *log;
        let end = job.run(&Tables::new(&connection, &self.blobs, self.options.blob_threshold));
        // Large bodies lie beside the database: where it was moved away, they are not missing.
        site.check()?;
        end.map_err(|error| of_sqlite(&error, site.database()))?;
        self.connection = Some(connection);
        Ok(())
    }
}
