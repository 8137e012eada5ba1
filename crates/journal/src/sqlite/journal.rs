//! The SQLite journal: it queues calls, and starts and stops the threads that run them.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use conjure_base::TenantId;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::options::SqliteOptions;
use super::reader::Reader;
use super::writer::Writer;
use crate::counter::{CounterIncrement, check_increments};
use crate::error::JournalError;
use crate::event::check_events;
use crate::event::{EventPage, PageLimit};
use crate::journal::{Journal, JournalFuture, SweepReport};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};
use crate::record::Records;
use crate::session::Snapshot;
use crate::session::{ListCursor, SessionInfo, SessionPage};
use crate::session_query::{RunningPage, SessionQuery};
use crate::session_row::AppendBatch;
use crate::sqlite::database::database_files::DatabaseFiles;
use crate::sqlite::database::error_map::{TxError, map_io_error};
use crate::sqlite::database::open::{self, WriteConnection};
use crate::sqlite::queue::call_queue::CallQueue;
use crate::sqlite::queue::fair_queue::QueueLimits;
use crate::sqlite::queue::job::{Batching, CallReply, QueuedCall, queued_call};
use crate::sqlite::statements::blobs::BlobStores;
use crate::sqlite::statements::garbage::MoreWork;
use crate::sqlite::statements::transaction::Tx;
use crate::tenant_weights::TenantWeights;

/// The journal in an SQLite database in a directory. Clones share it.
/// Several processes may have it open; SQLite's transactions serialise their writes. When the last clone is dropped, the threads run all
/// submitted calls and end. [`SqliteJournal::close`] waits for that.
#[derive(Clone)]
pub struct SqliteJournal {
    pub(super) inner: Arc<JournalInner>,
}

pub(super) struct JournalInner {
    pub(super) files: Arc<DatabaseFiles>,
    options: SqliteOptions,
    writes: Arc<CallQueue<Box<dyn QueuedCall>>>,
    reads: Arc<CallQueue<Box<dyn QueuedCall>>>,
    blobs: Arc<BlobStores>,
    /// The number of running writer threads.
    pub(super) writers: watch::Receiver<usize>,
    pub(super) readers: watch::Receiver<usize>,
}

impl SqliteJournal {
    /// Opens the journal in this directory. Creates it if it is missing, and migrates it to the current format.
    ///
    /// It blocks; asynchronous code must call it on a blocking thread.
    ///
    /// # Errors
    /// `NewerFormat`; `Corrupt` for a damaged file; `NotAJournal`; `ReadOnly`; `Locked`; `DiskFull`.
    pub fn open(dir: &Path, options: SqliteOptions) -> Result<Self, JournalError> {
        let path = open::prepare_dir(dir)?;
        let (writable, files) = open::open_database(&path, &options)?;
        Self::start(files, options, writable)
    }

    /// Reopens the journal after its thread was lost and it was [closed](Self::close). It keeps the weights. It blocks.
    ///
    /// # Errors
    /// As for [`SqliteJournal::open`], and `DatabaseMoved` when the database was moved or replaced: it is not created again.
    pub fn reopen(&self) -> Result<Self, JournalError> {
        let JournalInner { files, options, .. } = &*self.inner;
        let writable = open::open_writer(files, options)?;
        files.replace_wal().set(writable.wal);
        let again = Self::start(Arc::clone(files), options.clone(), writable)?;
        again.set_weights(self.inner.writes.weights());
        Ok(again)
    }

    /// The directory of large bodies of the journal in `dir`. It has a subdirectory for each tenant with such bodies.
    #[must_use]
    pub fn blobs_dir(dir: &Path) -> PathBuf {
        dir.join("blobs")
    }

    fn start(
        files: Arc<DatabaseFiles>,
        options: SqliteOptions,
        writable: WriteConnection,
    ) -> Result<Self, JournalError> {
        let blobs =
            Arc::new(BlobStores::new(Self::blobs_dir(files.database().parent().unwrap_or(Path::new("/")))));
        let limits = QueueLimits {
            calls: options.queue,
            calls_per_tenant: options.queue_per_tenant,
            bytes: options.queue_bytes,
            bytes_per_tenant: options.queue_bytes_per_tenant,
        };
        let (writes, reads) = (Arc::new(CallQueue::new(limits)), Arc::new(CallQueue::new(limits)));
        let (writers_alive, writers) = watch::channel(0);
        let (readers_alive, readers) = watch::channel(0);
        // From here on an error drops `inner`, which ends the started threads.
        let inner = JournalInner { files, options, writes, reads, blobs, writers, readers };
        let readers_alive = Arc::new(readers_alive);
        let threads = (0..inner.options.readers.max(1)).map(|_| inner.start_reader(&readers_alive));
        let threads = threads.collect::<Result<Vec<_>, _>>()?;
        inner.start_writer(writable, threads, &Arc::new(writers_alive))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Closes the journal for new calls. Resolves when all submitted calls have run and the database is closed.
    #[must_use]
    pub fn close(&self) -> BoxFuture<'static, ()> {
        let inner = Arc::clone(&self.inner);
        inner.writes.close();
        inner.reads.close();
        async move {
            for mut alive in [inner.readers.clone(), inner.writers.clone()] {
                // An error means that all threads have ended.
                let _ = alive.wait_for(|alive| *alive == 0).await;
            }
        }
        .boxed()
    }

    /// Makes the writer thread panic in the middle of a transaction, for tests. Waiting calls get `Lost`, and later ones `ThreadEnded`.
    pub fn kill_writer_for_test(&self) {
        let killed =
            self.submit_write::<()>(None, 0, |_| std::panic::resume_unwind(Box::new("it was killed")));
        // The result has no information.
        drop(killed);
    }

    pub(super) fn submit_write<T: Send + 'static>(
        &self,
        tenant: Option<&TenantId>,
        bytes: usize,
        work: impl FnMut(&Tx<'_>) -> Result<T, TxError> + Send + 'static,
    ) -> JournalFuture<T> {
        submit(&self.inner.writes, "writer", tenant.cloned(), bytes, queued_call(Batching::Shared, work))
    }

    pub(super) fn submit_read<T: Send + 'static>(
        &self,
        tenant: Option<&TenantId>,
        work: impl FnMut(&Tx<'_>) -> Result<T, TxError> + Send + 'static,
    ) -> JournalFuture<T> {
        submit(&self.inner.reads, "reader", tenant.cloned(), 0, queued_call(Batching::Shared, work))
    }

    fn check_body_size(&self, body: &[u8]) -> Result<(), JournalError> {
        let (size, limit) = (body.len(), self.inner.options.max_body);
        if size > limit {
            return Err(JournalError::TooLarge { what: "the body", size, limit });
        }
        Ok(())
    }
}

/// Queues a call.
fn submit<T: Send + 'static>(
    queue: &Arc<CallQueue<Box<dyn QueuedCall>>>,
    part: &'static str,
    tenant: Option<TenantId>,
    bytes: usize,
    (job, answer): (Box<dyn QueuedCall>, CallReply<T>),
) -> JournalFuture<T> {
    if let Err(error) = queue.push(tenant, bytes, job) {
        return ready_error(error);
    }
    let queue = Arc::clone(queue);
    async move {
        match answer.await {
            Ok(result) => result,
            // The thread dropped the call: it has ended, and may not have set the reason yet.
            Err(_) => Err(queue
                .close_reason()
                .filter(JournalError::is_critical)
                .unwrap_or_else(|| JournalError::Lost { part, reason: "a call was dropped".to_owned() })),
        }
    }
    .boxed()
}

fn ready_error<T: Send + 'static>(error: JournalError) -> JournalFuture<T> {
    std::future::ready(Err(error)).boxed()
}

impl JournalInner {
    fn start_writer(
        &self,
        open: WriteConnection,
        readers: Vec<JoinHandle<()>>,
        alive: &Arc<watch::Sender<usize>>,
    ) -> Result<JoinHandle<()>, JournalError> {
        let writer = Writer {
            files: Arc::clone(&self.files),
            options: self.options.clone(),
            queue: Arc::clone(&self.writes),
            blobs: Arc::clone(&self.blobs),
            open: Some(open),
            garbage: MoreWork::Yes,
        };
        // An idle reader may have an old WAL open. So the writer closes last, because it merges the current WAL.
        let run = || {
            let connection = writer.run();
            // A panic was reported by the thread itself.
            readers.into_iter().for_each(|reader| drop(reader.join()));
            drop(connection);
        };
        self.start("writer", &self.writes, alive, run)
    }

    fn start_reader(&self, alive: &Arc<watch::Sender<usize>>) -> Result<JoinHandle<()>, JournalError> {
        let wal = *self.files.read_wal();
        let reader = Reader {
            files: Arc::clone(&self.files),
            options: self.options.clone(),
            queue: Arc::clone(&self.reads),
            blobs: Arc::clone(&self.blobs),
            connection: Some(open::open_reader(&self.files, wal, &self.options)?),
            wal,
        };
        self.start("reader", &self.reads, alive, || reader.run())
    }

    /// Starts a thread. It ends when its queue is closed and empty. If it panics, all waiting calls fail.
    fn start(
        &self,
        part: &'static str,
        queue: &Arc<CallQueue<Box<dyn QueuedCall>>>,
        alive: &Arc<watch::Sender<usize>>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, JournalError> {
        let (queue, counted) = (Arc::clone(queue), Arc::clone(alive));
        alive.send_modify(|alive| *alive += 1);
        let thread = std::thread::Builder::new().name(format!("journal-{part}")).spawn(move || {
            if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(run)) {
                let reason = panic_text(panic.as_ref());
                tracing::error!(part, reason, "a thread of the journal has panicked");
                queue.fail_all(JournalError::Lost { part, reason });
            }
            counted.send_modify(|alive| *alive -= 1);
        });
        thread.map_err(|error| {
            alive.send_modify(|alive| *alive -= 1);
            map_io_error(&error, "start a thread for", self.files.database())
        })
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without a text".to_owned()))
}

impl Journal for SqliteJournal {
    fn create(&self, key: &SessionKey) -> JournalFuture<()> {
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), 0, move |tx| tx.create(&owned))
    }

    fn append_batch(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        batch: AppendBatch,
    ) -> JournalFuture<u64> {
        let checked = check_events(&batch.events)
            .and_then(|()| check_increments(&batch.increments))
            .and_then(|()| batch.check_row())
            .and_then(|()| batch.events.iter().try_for_each(|event| self.check_body_size(&event.body)));
        if let Err(error) = checked {
            return ready_error(error);
        }
        let bytes = batch.events.iter().map(|event| event.body.len()).sum();
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), bytes, move |tx| tx.append(&owned, expected_seq, epoch, &batch))
    }

    fn read(&self, key: &SessionKey, from: u64, limit: PageLimit) -> JournalFuture<EventPage> {
        let owned = key.clone();
        self.submit_read(Some(&key.tenant), move |tx| tx.read_events(&owned, from, limit))
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> JournalFuture<()> {
        if let Err(error) = self.check_body_size(&snapshot.body) {
            return ready_error(error);
        }
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), snapshot.body.len(), move |tx| {
            tx.save_snapshot(&owned, epoch, &snapshot)
        })
    }

    fn snapshot(&self, key: &SessionKey) -> JournalFuture<Option<Snapshot>> {
        let owned = key.clone();
        self.submit_read(Some(&key.tenant), move |tx| tx.snapshot(&owned))
    }

    fn acquire_lease(&self, key: &SessionKey, owner: &LeaseOwner, time: Duration) -> JournalFuture<Lease> {
        let (owned, owner) = (key.clone(), owner.clone());
        self.submit_write(Some(&key.tenant), 0, move |tx| tx.acquire_lease(&owned, &owner, time))
    }

    fn renew_lease(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> JournalFuture<Lease> {
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), 0, move |tx| tx.renew_lease(&owned, epoch, time))
    }

    fn release_lease(&self, key: &SessionKey, epoch: Epoch) -> JournalFuture<()> {
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), 0, move |tx| tx.release_lease(&owned, epoch))
    }

    fn session(&self, key: &SessionKey) -> JournalFuture<SessionInfo> {
        let owned = key.clone();
        self.submit_read(Some(&key.tenant), move |tx| tx.session(&owned))
    }

    fn query_sessions(&self, tenant: &TenantId, query: SessionQuery) -> JournalFuture<SessionPage> {
        let owned = tenant.clone();
        self.submit_read(Some(tenant), move |tx| tx.query_sessions(&owned, &query))
    }

    fn running_sessions(&self, after: Option<ListCursor>, limit: u32) -> JournalFuture<RunningPage> {
        self.submit_read(None, move |tx| tx.running_sessions(after, limit))
    }

    fn records(&self) -> Arc<dyn Records> {
        Arc::new(self.clone())
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> JournalFuture<Vec<TenantId>> {
        let after = after.cloned();
        self.submit_read(None, move |tx| tx.tenants(after.as_ref(), limit))
    }

    fn increment_counters(&self, tenant: &TenantId, increments: Vec<CounterIncrement>) -> JournalFuture<()> {
        if let Err(error) = check_increments(&increments) {
            return ready_error(error);
        }
        let owned = tenant.clone();
        self.submit_write(Some(tenant), 0, move |tx| tx.increment_counters(&owned, &increments))
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<Vec<u64>> {
        let owned = tenant.clone();
        self.submit_read(Some(tenant), move |tx| tx.counters(&owned, &names))
    }

    fn list_counters(&self, tenant: &TenantId) -> JournalFuture<Vec<String>> {
        let owned = tenant.clone();
        self.submit_read(Some(tenant), move |tx| tx.list_counters(&owned))
    }

    fn delete_counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<u64> {
        let owned = tenant.clone();
        self.submit_write(Some(tenant), 0, move |tx| tx.delete_counters(&owned, &names))
    }

    fn session_count(&self, tenant: &TenantId) -> JournalFuture<u64> {
        let owned = tenant.clone();
        self.submit_read(Some(tenant), move |tx| tx.session_count(&owned))
    }

    fn stored_bytes(&self, tenant: &TenantId) -> JournalFuture<u64> {
        let owned = tenant.clone();
        self.submit_read(Some(tenant), move |tx| tx.stored_bytes(&owned))
    }

    fn delete_session(&self, key: &SessionKey) -> JournalFuture<()> {
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), 0, move |tx| tx.delete_session(&owned))
    }

    fn delete_if_unchanged(&self, key: &SessionKey, events: u64) -> JournalFuture<()> {
        let owned = key.clone();
        self.submit_write(Some(&key.tenant), 0, move |tx| tx.delete_if_unchanged(&owned, events))
    }

    fn delete_tenant(&self, tenant: &TenantId) -> JournalFuture<u64> {
        let owned = tenant.clone();
        self.submit_write(Some(tenant), 0, move |tx| tx.delete_tenant(&owned))
    }

    fn set_weights(&self, weights: TenantWeights) {
        self.inner.writes.set_weights(weights.clone());
        self.inner.reads.set_weights(weights);
    }

    fn sweep(&self) -> JournalFuture<SweepReport> {
        sweep(Self { inner: Arc::clone(&self.inner) }).boxed()
    }
}

/// Removes the garbage of deletions, then unreferenced bodies, tenant by tenant and each in its own transaction, so other calls run in
/// between. A read without a lock first checks whether a tenant has any.
async fn sweep(journal: SqliteJournal) -> Result<SweepReport, JournalError> {
    let mut swept = SweepReport::default();
    let writes = &journal.inner.writes;
    while journal.submit_read(None, |tx| tx.has_garbage()).await? {
        exclusive_job(writes, |tx| tx.remove_garbage()).await?;
    }
    for tenant in journal.submit_read(None, |tx| Ok(tx.blobs.tenants()?)).await? {
        let checked_tenant = tenant.clone();
        if !journal.submit_read(Some(&tenant), move |tx| tx.has_unreferenced_blobs(&checked_tenant)).await? {
            continue;
        }
        let tenant_report = exclusive_job(writes, move |tx| tx.collect_blobs(&tenant)).await?;
        swept.blobs += tenant_report.blobs;
        swept.bytes += tenant_report.bytes;
    }
    Ok(swept)
}

fn exclusive_job<T: Send + 'static>(
    writes: &Arc<CallQueue<Box<dyn QueuedCall>>>,
    work: impl FnMut(&Tx<'_>) -> Result<T, TxError> + Send + 'static,
) -> JournalFuture<T> {
    submit(writes, "writer", None, 0, queued_call(Batching::Exclusive, work))
}

impl Drop for JournalInner {
    fn drop(&mut self) {
        self.writes.close();
        self.reads.close();
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.inner.files.database()).finish_non_exhaustive()
    }
}
