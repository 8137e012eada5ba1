//! Journals in memory and in SQLite, and a tree with their actor.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_actors::journal::{JournalHandle, OpenJournal, journal_actor};
use conjure_actors::supervision::{Backoff, ChildId, Intensity, Root, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SessionId, SystemClock, TenantId};
use conjure_journal::{
    AppendBatch, CounterIncrement, Epoch, EventPage, FoundInstead, Journal, JournalError, JournalFuture,
    Lease, LeaseOwner, ListCursor, MemoryJournal, PageLimit, Records, RunningPage, SessionInfo, SessionKey,
    SessionPage, SessionQuery, Snapshot, SqliteJournal, SqliteOptions, SweepReport, TenantWeights,
};
use tokio::sync::watch;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long a call waits for a journal that is being opened: none of the tests that open one waits for it in vain.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Longer than any test takes.
pub(crate) fn soon() -> Deadline {
    SystemClock.deadline(SECOND * 600)
}

/// A deadline that has passed.
pub(crate) fn now() -> Deadline {
    SystemClock.deadline(Duration::ZERO)
}

/// Options for a loaded machine: one journal may be slow to close while the next one is opened.
pub(crate) fn patient() -> SqliteOptions {
    SqliteOptions { busy_timeout: PATIENCE, ..SqliteOptions::default() }
}

/// A temporary directory for the journals that need one.
pub(crate) struct TempDisk(tempfile::TempDir);

impl TempDisk {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Opens the journal in this directory, any number of times.
    pub(crate) fn sqlite(&self) -> Arc<OpenJournal> {
        let dir = self.0.path().to_owned();
        Arc::new(move || {
            let dir = dir.clone();
            Box::pin(async move {
                let open = tokio::task::spawn_blocking(move || SqliteJournal::open(&dir, patient()));
                open.await.unwrap().map(|journal| Arc::new(journal) as Arc<dyn Journal>)
            })
        })
    }
}

/// A journal in memory, the same one whenever it is opened.
pub(crate) fn memory() -> Arc<OpenJournal> {
    of(MemoryJournal::new())
}

pub(crate) fn of(journal: impl Journal + Clone + 'static) -> Arc<OpenJournal> {
    Arc::new(move || {
        let journal: Arc<dyn Journal> = Arc::new(journal.clone());
        Box::pin(async move { Ok(journal) })
    })
}

/// A tree of nothing but a journal.
pub(crate) async fn journal_tree(open: Arc<OpenJournal>) -> (Root, JournalHandle) {
    let (child, access) = journal_actor(open, PATIENCE).unwrap();
    let spec = SupervisorSpec::ordered(ChildId::new("root").unwrap(), Strategy::OneForOne)
        .intensity(Intensity::new(1_000_000, SECOND))
        .backoff(Backoff::NONE);
    let (spec, _) = spec.child(child).unwrap().build();
    (Root::spawn(spec, soon()).await.unwrap(), access)
}

/// A key of a session that is there.
pub(crate) async fn session(access: &JournalHandle) -> Arc<SessionKey> {
    let key = SessionKey::new(TenantId::new("acme").unwrap(), SessionId::random().unwrap());
    access.journal().await.unwrap().create(&key).await.unwrap();
    Arc::new(key)
}

/// A journal in memory that fails on request.
#[derive(Debug, Clone)]
pub(crate) struct FailingJournal {
    inner: MemoryJournal,
    fault: Arc<Mutex<Fault>>,
}

#[derive(Debug, Default)]
struct Fault {
    /// After this many further appends its writer is lost.
    lost_after: Option<u64>,
    losses: u64,
    /// The append is recorded although its acknowledgement is lost.
    records_what_it_loses: bool,
    /// So many appends are refused as too many at once.
    busy: u64,
    /// So many charges are refused as too many at once.
    charges_refused: u64,
    /// No append or read succeeds, as with a moved database.
    is_away: bool,
    /// How often events were to be read while it was away.
    missed: u64,
    /// Leases are not renewed.
    renewals_fail: bool,
    /// Appends wait here, where there is one.
    door: Option<AppendGate>,
}

/// Appends wait until the gate is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct AppendGate {
    reached: Arc<watch::Sender<u64>>,
    is_open: Arc<watch::Sender<bool>>,
}

impl AppendGate {
    /// Waits until this many appends have reached it.
    pub(crate) async fn reached(&self, count: u64) {
        self.reached.subscribe().wait_for(|reached| *reached >= count).await.unwrap();
    }

    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }

    async fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        self.is_open.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

impl FailingJournal {
    pub(crate) fn new(inner: MemoryJournal) -> Self {
        Self { inner, fault: Arc::default() }
    }

    /// This journal, which fails no more once it is opened again.
    pub(crate) fn mended_when_opened(&self) -> Arc<OpenJournal> {
        let opened = self.clone();
        Arc::new(move || {
            opened.mend();
            let journal: Arc<dyn Journal> = Arc::new(opened.clone());
            Box::pin(async move { Ok(journal) })
        })
    }

    pub(crate) fn lose_after(&self, appends: u64) {
        self.fault.lock().unwrap().lost_after = Some(appends);
    }

    /// The same, but the append is recorded without an acknowledgement.
    pub(crate) fn lose_the_answer_after(&self, appends: u64) {
        self.fault.lock().unwrap().records_what_it_loses = true;
        self.lose_after(appends);
    }

    pub(crate) fn refuse(&self, appends: u64) {
        self.fault.lock().unwrap().busy = appends;
    }

    pub(crate) fn refuse_charges(&self, charges: u64) {
        self.fault.lock().unwrap().charges_refused = charges;
    }

    pub(crate) fn losses(&self) -> u64 {
        self.fault.lock().unwrap().losses
    }

    /// From now on nothing is recorded or read, or it is again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.fault.lock().unwrap().is_away = is_away;
    }

    pub(crate) fn missed(&self) -> u64 {
        self.fault.lock().unwrap().missed
    }

    pub(crate) fn fail_renewals(&self) {
        self.fault.lock().unwrap().renewals_fail = true;
    }

    /// From now on appends wait before this door.
    pub(crate) fn shut(&self) -> AppendGate {
        self.fault.lock().unwrap().door.insert(AppendGate::default()).clone()
    }

    pub(crate) fn mend(&self) {
        self.fault.lock().unwrap().lost_after = None;
    }
}

fn away() -> JournalError {
    JournalError::DatabaseMoved { path: "journal.sqlite".into(), found: FoundInstead::Nothing }
}

impl Journal for FailingJournal {
    fn append_batch(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        batch: AppendBatch,
    ) -> JournalFuture<u64> {
        let mut fault = self.fault.lock().unwrap();
        if fault.is_away {
            return Box::pin(async { Err(away()) });
        }
        if fault.busy > 0 {
            fault.busy -= 1;
            return Box::pin(async { Err(JournalError::Overloaded { tenant: None, waiting: 9, bytes: 9 }) });
        }
        if let Some(remaining) = &mut fault.lost_after {
            if *remaining == 0 {
                fault.losses += 1;
                let lost = JournalError::Lost { part: "writer", reason: "the test ended it".to_owned() };
                let recorded = fault
                    .records_what_it_loses
                    .then(|| self.inner.append_batch(key, expected_seq, epoch, batch));
                return Box::pin(async move {
                    if let Some(recorded) = recorded {
                        recorded.await?;
                    }
                    Err(lost)
                });
            }
            *remaining -= 1;
        }
        if let Some(door) = fault.door.clone() {
            let (inner, key) = (self.inner.clone(), key.clone());
            return Box::pin(async move {
                door.pass().await;
                inner.append_batch(&key, expected_seq, epoch, batch).await
            });
        }
        self.inner.append_batch(key, expected_seq, epoch, batch)
    }

    fn increment_counters(&self, tenant: &TenantId, charges: Vec<CounterIncrement>) -> JournalFuture<()> {
        let mut fault = self.fault.lock().unwrap();
        if fault.charges_refused > 0 {
            fault.charges_refused -= 1;
            return Box::pin(async { Err(JournalError::Overloaded { tenant: None, waiting: 9, bytes: 9 }) });
        }
        self.inner.increment_counters(tenant, charges)
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<Vec<u64>> {
        self.inner.counters(tenant, names)
    }

    fn list_counters(&self, tenant: &TenantId) -> JournalFuture<Vec<String>> {
        self.inner.list_counters(tenant)
    }

    fn delete_counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<u64> {
        self.inner.delete_counters(tenant, names)
    }

    fn session_count(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.inner.session_count(tenant)
    }

    fn stored_bytes(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.inner.stored_bytes(tenant)
    }

    fn create(&self, key: &SessionKey) -> JournalFuture<()> {
        self.inner.create(key)
    }

    fn read(&self, key: &SessionKey, from: u64, limit: PageLimit) -> JournalFuture<EventPage> {
        let mut fault = self.fault.lock().unwrap();
        if fault.is_away {
            fault.missed += 1;
            return Box::pin(async { Err(away()) });
        }
        self.inner.read(key, from, limit)
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> JournalFuture<()> {
        self.inner.save_snapshot(key, epoch, snapshot)
    }

    fn snapshot(&self, key: &SessionKey) -> JournalFuture<Option<Snapshot>> {
        self.inner.snapshot(key)
    }

    fn acquire_lease(&self, key: &SessionKey, owner: &LeaseOwner, time: Duration) -> JournalFuture<Lease> {
        self.inner.acquire_lease(key, owner, time)
    }

    fn renew_lease(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> JournalFuture<Lease> {
        if self.fault.lock().unwrap().renewals_fail {
            return Box::pin(async { Err(JournalError::Closed) });
        }
        self.inner.renew_lease(key, epoch, time)
    }

    fn release_lease(&self, key: &SessionKey, epoch: Epoch) -> JournalFuture<()> {
        self.inner.release_lease(key, epoch)
    }

    fn session(&self, key: &SessionKey) -> JournalFuture<SessionInfo> {
        self.inner.session(key)
    }

    fn query_sessions(&self, tenant: &TenantId, query: SessionQuery) -> JournalFuture<SessionPage> {
        self.inner.query_sessions(tenant, query)
    }

    fn running_sessions(&self, after: Option<ListCursor>, limit: u32) -> JournalFuture<RunningPage> {
        self.inner.running_sessions(after, limit)
    }

    fn records(&self) -> Arc<dyn Records> {
        self.inner.records()
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> JournalFuture<Vec<TenantId>> {
        self.inner.tenants(after, limit)
    }

    fn delete_session(&self, key: &SessionKey) -> JournalFuture<()> {
        self.inner.delete_session(key)
    }

    fn delete_if_unchanged(&self, key: &SessionKey, events: u64) -> JournalFuture<()> {
        self.inner.delete_if_unchanged(key, events)
    }

    fn delete_tenant(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.inner.delete_tenant(tenant)
    }

    fn sweep(&self) -> JournalFuture<SweepReport> {
        self.inner.sweep()
    }

    fn set_weights(&self, weights: TenantWeights) {
        self.inner.set_weights(weights);
    }
}
