//! The journal's front: it makes calls into jobs, and starts and ends the threads that do them.

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

use super::blobs::Blobs;
use super::fault::{Failure, of_io};
use super::garbage::Left;
use super::job::{Answer, Company, Job, job};
use super::open::{self, Writable};
use super::options::SqliteOptions;
use super::queue::Queue;
use super::reader::Reader;
use super::site::Site;
use super::tables::Tables;
use super::turns::Bounds;
use super::writer::Writer;
use crate::charge::{Charge, check_charges};
use crate::error::JournalError;
use crate::event::{EventPage, NewEvent, PageLimit};
use crate::journal::{Journal, Reply, Swept};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, Owner};
use crate::memory::check_events;
use crate::session::{ListCursor, SessionInfo, SessionPage};
use crate::snapshot::Snapshot;
use crate::weights::Weights;

/// The journal in one SQLite database in a folder. Clones are the same journal.
///
/// Any number of processes may have it open at a time; they take turns at writing, by transactions. When the last clone
/// is dropped its threads carry out what was submitted, and end; [`SqliteJournal::close`] waits for that.
#[derive(Clone)]
pub struct SqliteJournal {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) site: Arc<Site>,
    options: SqliteOptions,
    writes: Arc<Queue<Box<dyn Job>>>,
    reads: Arc<Queue<Box<dyn Job>>>,
    blobs: Arc<Blobs>,
    /// How many threads of each sort are at work.
    pub(super) writers: watch::Receiver<usize>,
    pub(super) readers: watch::Receiver<usize>,
}

impl SqliteJournal {
    /// Opens the journal in this folder, which is made if it is missing, and brings it to the present format. This
    /// blocks, for moments: an asynchronous host does it on a blocking thread.
    ///
    /// # Errors
    /// `FutureFormat`; `Corrupt` for a damaged file and one that is no journal; `ReadOnly`; `Locked`; `DiskFull`.
    pub fn open(folder: &Path, options: SqliteOptions) -> Result<Self, JournalError> {
        let path = open::prepare(folder)?;
        let (writable, site) = open::open(&path, &options)?;
        Self::start(site, options, writable)
    }

    /// Opens the same journal anew, after it was lost and [closed](Self::close): what nobody has open any more is in its files. It
    /// has the same weights. This blocks, for moments.
    ///
    /// # Errors
    /// As for [`SqliteJournal::open`], and `Displaced` where its database is gone, or another: none is made in its place.
    pub fn open_again(&self) -> Result<Self, JournalError> {
        let Inner { site, options, .. } = &*self.inner;
        let writable = open::writer(site, options)?;
        site.mending().set(writable.log);
        let again = Self::start(Arc::clone(site), options.clone(), writable)?;
        again.set_weights(self.inner.writes.weights());
        Ok(again)
    }

    /// Where the journal in this folder keeps large bodies: those of each tenant in a folder of its name, made with the first.
    #[must_use]
    pub fn bodies(folder: &Path) -> PathBuf {
        folder.join("blobs")
    }

    fn start(site: Arc<Site>, options: SqliteOptions, writable: Writable) -> Result<Self, JournalError> {
        let blobs = Arc::new(Blobs::new(Self::bodies(site.database().parent().unwrap_or(Path::new("/")))));
        let bounds = Bounds {
            calls: options.queue,
            calls_per_tenant: options.queue_per_tenant,
            bytes: options.queue_bytes,
            bytes_per_tenant: options.queue_bytes_per_tenant,
        };
        let (writes, reads) = (Arc::new(Queue::new(bounds)), Arc::new(Queue::new(bounds)));
        let (writers_alive, writers) = watch::channel(0);
        let (readers_alive, readers) = watch::channel(0);
        // From here on what fails drops this, which ends the threads that were started.
        let inner = Inner { site, options, writes, reads, blobs, writers, readers };
        let readers_alive = Arc::new(readers_alive);
        let threads = (0..inner.options.readers.max(1)).map(|_| inner.start_reader(&readers_alive));
        let threads = threads.collect::<Result<Vec<_>, _>>()?;
        inner.start_writer(writable, threads, &Arc::new(writers_alive))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Accepts no more calls, and resolves when all that were submitted are carried out and the database is closed.
    #[must_use]
    pub fn close(&self) -> BoxFuture<'static, ()> {
        let inner = Arc::clone(&self.inner);
        inner.writes.close();
        inner.reads.close();
        async move {
            for mut alive in [inner.readers.clone(), inner.writers.clone()] {
                // An error means that all threads are gone.
                let _ = alive.wait_for(|alive| *alive == 0).await;
            }
        }
        .boxed()
    }

    /// Ends the thread that writes, in the middle of a transaction and without asking, as a defect in it would. Calls that wait
    /// hear `Lost`, and all that come later `Ended`.
    pub fn kill_writer(&self) {
        let killed = self.write::<()>(None, 0, |_| std::panic::resume_unwind(Box::new("it was killed")));
        // Nobody waits for its answer, which tells nothing.
        drop(killed);
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        tenant: Option<&TenantId>,
        bytes: usize,
        work: impl FnMut(&Tables<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Reply<T> {
        submit(&self.inner.writes, "writer", tenant.cloned(), bytes, job(Company::Any, work))
    }

    pub(super) fn read<T: Send + 'static>(
        &self,
        tenant: Option<&TenantId>,
        work: impl FnMut(&Tables<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Reply<T> {
        submit(&self.inner.reads, "reader", tenant.cloned(), 0, job(Company::Any, work))
    }

    fn check_body(&self, body: &[u8]) -> Result<(), JournalError> {
        let (size, limit) = (body.len(), self.inner.options.largest_body);
        if size > limit {
            return Err(JournalError::TooLarge { what: "the body", size, limit });
        }
        Ok(())
    }
}

/// Lets a call wait in a queue.
fn submit<T: Send + 'static>(
    queue: &Arc<Queue<Box<dyn Job>>>,
    part: &'static str,
    tenant: Option<TenantId>,
    bytes: usize,
    (job, answer): (Box<dyn Job>, Answer<T>),
) -> Reply<T> {
    if let Err(error) = queue.push(tenant, bytes, job) {
        return refuse(error);
    }
    let queue = Arc::clone(queue);
    async move {
        match answer.await {
            Ok(result) => result,
            // The thread dropped the job: it has ended, and may not have said why yet.
            Err(_) => Err(queue
                .end()
                .filter(JournalError::is_critical)
                .unwrap_or_else(|| JournalError::Lost { part, reason: "a call was dropped".to_owned() })),
        }
    }
    .boxed()
}

fn refuse<T: Send + 'static>(error: JournalError) -> Reply<T> {
    std::future::ready(Err(error)).boxed()
}

impl Inner {
    fn start_writer(
        &self,
        open: Writable,
        readers: Vec<JoinHandle<()>>,
        alive: &Arc<watch::Sender<usize>>,
    ) -> Result<JoinHandle<()>, JournalError> {
        let writer = Writer {
            site: Arc::clone(&self.site),
            options: self.options.clone(),
            queue: Arc::clone(&self.writes),
            blobs: Arc::clone(&self.blobs),
            open: Some(open),
            garbage: Left::Something,
        };
        // A reader that rested may have an older log open: only the writer is sure to merge the right one, when it is the last.
        let run = || {
            let connection = writer.run();
            // One that panicked has said so.
            readers.into_iter().for_each(|reader| drop(reader.join()));
            drop(connection);
        };
        self.start("writer", &self.writes, alive, run)
    }

    fn start_reader(&self, alive: &Arc<watch::Sender<usize>>) -> Result<JoinHandle<()>, JournalError> {
        let log = *self.site.reading();
        let reader = Reader {
            site: Arc::clone(&self.site),
            options: self.options.clone(),
            queue: Arc::clone(&self.reads),
            blobs: Arc::clone(&self.blobs),
            connection: Some(open::reader(&self.site, log, &self.options)?),
            log,
        };
        self.start("reader", &self.reads, alive, || reader.run())
    }

    /// Starts a thread. It ends when its queue is closed and empty; when it ends otherwise the queue fails.
    fn start(
        &self,
        part: &'static str,
        queue: &Arc<Queue<Box<dyn Job>>>,
        alive: &Arc<watch::Sender<usize>>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, JournalError> {
        let (queue, counted) = (Arc::clone(queue), Arc::clone(alive));
        alive.send_modify(|alive| *alive += 1);
        let thread = std::thread::Builder::new().name(format!("journal-{part}")).spawn(move || {
            if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(run)) {
                let reason = panic_text(panic.as_ref());
                tracing::error!(part, reason, "a thread of the journal has panicked");
                queue.fail(JournalError::Lost { part, reason });
            }
            counted.send_modify(|alive| *alive -= 1);
        });
        thread.map_err(|error| {
            alive.send_modify(|alive| *alive -= 1);
            of_io(&error, "start a thread for", self.site.database())
        })
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.unwrap_or_else(|| "without a text".to_owned()))
}

impl Journal for SqliteJournal {
    fn create(&self, key: &SessionKey) -> Reply<()> {
        let owned = key.clone();
        self.write(Some(&key.tenant), 0, move |tables| tables.create(&owned))
    }

    fn append_charged(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        charges: Vec<Charge>,
    ) -> Reply<u64> {
        let checked = check_events(&events)
            .and_then(|()| check_charges(&charges))
            .and_then(|()| events.iter().try_for_each(|event| self.check_body(&event.body)));
        if let Err(error) = checked {
            return refuse(error);
        }
        let bytes = events.iter().map(|event| event.body.len()).sum();
        let owned = key.clone();
        self.write(Some(&key.tenant), bytes, move |tables| {
            tables.append(&owned, expected_seq, epoch, &events, &charges)
        })
    }

    fn load(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Reply<EventPage> {
        let owned = key.clone();
        self.read(Some(&key.tenant), move |tables| tables.load(&owned, from, limit))
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> Reply<()> {
        if let Err(error) = self.check_body(&snapshot.body) {
            return refuse(error);
        }
        let owned = key.clone();
        self.write(Some(&key.tenant), snapshot.body.len(), move |tables| {
            tables.save_snapshot(&owned, epoch, &snapshot)
        })
    }

    fn snapshot(&self, key: &SessionKey) -> Reply<Option<Snapshot>> {
        let owned = key.clone();
        self.read(Some(&key.tenant), move |tables| tables.snapshot(&owned))
    }

    fn acquire(&self, key: &SessionKey, owner: &Owner, time: Duration) -> Reply<Lease> {
        let (owned, owner) = (key.clone(), owner.clone());
        self.write(Some(&key.tenant), 0, move |tables| tables.acquire(&owned, &owner, time))
    }

    fn renew(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> Reply<Lease> {
        let owned = key.clone();
        self.write(Some(&key.tenant), 0, move |tables| tables.renew(&owned, epoch, time))
    }

    fn release(&self, key: &SessionKey, epoch: Epoch) -> Reply<()> {
        let owned = key.clone();
        self.write(Some(&key.tenant), 0, move |tables| tables.release(&owned, epoch))
    }

    fn session(&self, key: &SessionKey) -> Reply<SessionInfo> {
        let owned = key.clone();
        self.read(Some(&key.tenant), move |tables| tables.session(&owned))
    }

    fn sessions(&self, tenant: &TenantId, after: Option<ListCursor>, limit: u32) -> Reply<SessionPage> {
        let owned = tenant.clone();
        self.read(Some(tenant), move |tables| tables.sessions(&owned, after, limit))
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Reply<Vec<TenantId>> {
        let after = after.cloned();
        self.read(None, move |tables| tables.tenants(after.as_ref(), limit))
    }

    fn charge(&self, tenant: &TenantId, charges: Vec<Charge>) -> Reply<()> {
        if let Err(error) = check_charges(&charges) {
            return refuse(error);
        }
        let owned = tenant.clone();
        self.write(Some(tenant), 0, move |tables| tables.charge(&owned, &charges))
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<Vec<u64>> {
        let owned = tenant.clone();
        self.read(Some(tenant), move |tables| tables.counters(&owned, &names))
    }

    fn counter_names(&self, tenant: &TenantId) -> Reply<Vec<String>> {
        let owned = tenant.clone();
        self.read(Some(tenant), move |tables| tables.counter_names(&owned))
    }

    fn forget_counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<u64> {
        let owned = tenant.clone();
        self.write(Some(tenant), 0, move |tables| tables.forget_counters(&owned, &names))
    }

    fn session_count(&self, tenant: &TenantId) -> Reply<u64> {
        let owned = tenant.clone();
        self.read(Some(tenant), move |tables| tables.session_count(&owned))
    }

    fn recorded_bytes(&self, tenant: &TenantId) -> Reply<u64> {
        let owned = tenant.clone();
        self.read(Some(tenant), move |tables| tables.recorded_bytes(&owned))
    }

    fn delete_session(&self, key: &SessionKey) -> Reply<()> {
        let owned = key.clone();
        self.write(Some(&key.tenant), 0, move |tables| tables.delete_session(&owned))
    }

    fn delete_unchanged(&self, key: &SessionKey, events: u64) -> Reply<()> {
        let owned = key.clone();
        self.write(Some(&key.tenant), 0, move |tables| tables.delete_unchanged(&owned, events))
    }

    fn delete_tenant(&self, tenant: &TenantId) -> Reply<u64> {
        let owned = tenant.clone();
        self.write(Some(tenant), 0, move |tables| tables.delete_tenant(&owned))
    }

    fn set_weights(&self, weights: Weights) {
        self.inner.writes.set_weights(weights.clone());
        self.inner.reads.set_weights(weights);
    }

    fn sweep(&self) -> Reply<Swept> {
        sweep(Self { inner: Arc::clone(&self.inner) }).boxed()
    }
}

/// Removes what deletions left, then what nothing refers to, tenant by tenant and each in a transaction of its own:
/// others get their turn in between. Whether a tenant has any is looked at without holding anybody up, and mostly it has none.
async fn sweep(journal: SqliteJournal) -> Result<Swept, JournalError> {
    let mut swept = Swept::default();
    let writes = &journal.inner.writes;
    while journal.read(None, |tables| tables.has_garbage()).await? {
        alone(writes, |tables| tables.remove_garbage()).await?;
    }
    for tenant in journal.read(None, |tables| Ok(tables.blobs.tenants()?)).await? {
        let looked_at = tenant.clone();
        if !journal.read(Some(&tenant), move |tables| tables.may_collect(&looked_at)).await? {
            continue;
        }
        let of_tenant = alone(writes, move |tables| tables.collect(&tenant)).await?;
        swept.blobs += of_tenant.blobs;
        swept.bytes += of_tenant.bytes;
    }
    Ok(swept)
}

fn alone<T: Send + 'static>(
    writes: &Arc<Queue<Box<dyn Job>>>,
    work: impl FnMut(&Tables<'_>) -> Result<T, Failure> + Send + 'static,
) -> Reply<T> {
    submit(writes, "writer", None, 0, job(Company::None, work))
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.writes.close();
        self.reads.close();
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.inner.site.database()).finish_non_exhaustive()
    }
}
