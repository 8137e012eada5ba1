//! Upcasting: events of older versions are converted to the current version when they are read.
//! Stored events are never rewritten. A change of a kind's format raises its version and adds a step from the earlier version. Reading
//! applies the missing steps to each event.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use futures_util::FutureExt as _;

use crate::counter::CounterIncrement;
use crate::error::JournalError;
use crate::event::{EventPage, PageLimit, RecordedEvent};
use crate::journal::{Journal, JournalFuture, SweepReport};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};
use crate::record::Records;
use crate::session::Snapshot;
use crate::session::{ListCursor, SessionInfo, SessionPage};
use crate::session_query::{RunningPage, SessionQuery};
use crate::session_row::AppendBatch;
use crate::weights::TenantWeights;

/// Converts a body to the next version.
type UpcastFn = Box<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

/// The kinds of events that a program knows, their versions, and the steps between versions.
///
/// ```
/// use conjure_journal::Upcasts;
///
/// let upcasts = Upcasts::new()
///     .with_kind("greeting", 2)
///     .with_step("greeting", 1, |body| Ok([b"hello, ", body].concat()));
/// ```
#[derive(Default)]
pub struct Upcasts {
    kinds: BTreeMap<String, KindVersions>,
}

#[derive(Default)]
struct KindVersions {
    newest: u32,
    steps: BTreeMap<u32, UpcastFn>,
}

impl Upcasts {
    /// No known kinds: every event is refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind with its newest version.
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<String>, newest: u32) -> Self {
        self.kinds.entry(kind.into()).or_default().newest = newest;
        self
    }

    /// Adds a step of this kind from version `from` to the next. A version without a step is read unchanged.
    #[must_use]
    pub fn with_step(
        mut self,
        kind: impl Into<String>,
        from: u32,
        step: impl Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.entry(kind.into()).or_default().steps.insert(from, Box::new(step));
        self
    }

    /// Converts the event to the newest known version.
    fn upcast(&self, mut event: RecordedEvent) -> Result<RecordedEvent, JournalError> {
        let known = self.kinds.get(&event.kind);
        let Some(kind) = known.filter(|kind| event.version <= kind.newest) else {
            return Err(JournalError::NewerEvent {
                seq: event.seq,
                version: event.version,
                known: known.map(|kind| kind.newest),
                kind: event.kind,
            });
        };
        for (from, step) in kind.steps.range(event.version..kind.newest) {
            event.body = step(&event.body).map_err(|reason| JournalError::Upcast {
                seq: event.seq,
                kind: event.kind.clone(),
                version: *from,
                reason,
            })?;
        }
        event.version = kind.newest;
        Ok(event)
    }
}

impl fmt::Debug for Upcasts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.kinds.iter().map(|(kind, known)| (kind, known.newest))).finish()
    }
}

/// A journal that reads events in the newest version of their kind. An unknown event is an error (`NewerEvent`), because skipping it would
/// change the meaning of the others.
#[derive(Debug, Clone)]
pub struct UpcastingJournal {
    journal: Arc<dyn Journal>,
    upcasts: Arc<Upcasts>,
}

impl UpcastingJournal {
    /// Wraps a journal with these steps.
    #[must_use]
    pub fn new(journal: Arc<dyn Journal>, upcasts: Upcasts) -> Self {
        Self { journal, upcasts: Arc::new(upcasts) }
    }
}

impl Journal for UpcastingJournal {
    fn read(&self, key: &SessionKey, from: u64, limit: PageLimit) -> JournalFuture<EventPage> {
        let page = self.journal.read(key, from, limit);
        let upcasts = Arc::clone(&self.upcasts);
        async move {
            let EventPage { events, total } = page.await?;
            let events = events.into_iter().map(|event| upcasts.upcast(event)).collect::<Result<_, _>>()?;
            Ok(EventPage { events, total })
        }
        .boxed()
    }

    fn create(&self, key: &SessionKey) -> JournalFuture<()> {
        self.journal.create(key)
    }

    fn append_batch(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        batch: AppendBatch,
    ) -> JournalFuture<u64> {
        self.journal.append_batch(key, expected_seq, epoch, batch)
    }

    fn increment_counters(&self, tenant: &TenantId, increments: Vec<CounterIncrement>) -> JournalFuture<()> {
        self.journal.increment_counters(tenant, increments)
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<Vec<u64>> {
        self.journal.counters(tenant, names)
    }

    fn list_counters(&self, tenant: &TenantId) -> JournalFuture<Vec<String>> {
        self.journal.list_counters(tenant)
    }

    fn delete_counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<u64> {
        self.journal.delete_counters(tenant, names)
    }

    fn session_count(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.journal.session_count(tenant)
    }

    fn stored_bytes(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.journal.stored_bytes(tenant)
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> JournalFuture<()> {
        self.journal.save_snapshot(key, epoch, snapshot)
    }

    fn snapshot(&self, key: &SessionKey) -> JournalFuture<Option<Snapshot>> {
        self.journal.snapshot(key)
    }

    fn acquire_lease(&self, key: &SessionKey, owner: &LeaseOwner, time: Duration) -> JournalFuture<Lease> {
        self.journal.acquire_lease(key, owner, time)
    }

    fn renew_lease(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> JournalFuture<Lease> {
        self.journal.renew_lease(key, epoch, time)
    }

    fn release_lease(&self, key: &SessionKey, epoch: Epoch) -> JournalFuture<()> {
        self.journal.release_lease(key, epoch)
    }

    fn session(&self, key: &SessionKey) -> JournalFuture<SessionInfo> {
        self.journal.session(key)
    }

    fn query_sessions(&self, tenant: &TenantId, query: SessionQuery) -> JournalFuture<SessionPage> {
        self.journal.query_sessions(tenant, query)
    }

    fn running_sessions(&self, after: Option<ListCursor>, limit: u32) -> JournalFuture<RunningPage> {
        self.journal.running_sessions(after, limit)
    }

    fn records(&self) -> Arc<dyn Records> {
        self.journal.records()
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> JournalFuture<Vec<TenantId>> {
        self.journal.tenants(after, limit)
    }

    fn delete_session(&self, key: &SessionKey) -> JournalFuture<()> {
        self.journal.delete_session(key)
    }

    fn delete_if_unchanged(&self, key: &SessionKey, events: u64) -> JournalFuture<()> {
        self.journal.delete_if_unchanged(key, events)
    }

    fn delete_tenant(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.journal.delete_tenant(tenant)
    }

    fn sweep(&self) -> JournalFuture<SweepReport> {
        self.journal.sweep()
    }

    fn set_weights(&self, weights: TenantWeights) {
        self.journal.set_weights(weights);
    }
}
