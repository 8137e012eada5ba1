//! Events of older versions, read as those of the present one.
//!
//! Events are never rewritten. Whoever changes the format of a kind raises its version and adds a step from the former
//! one; loading takes each event through the steps that it lacks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use futures_util::FutureExt as _;

use crate::charge::Charge;
use crate::error::JournalError;
use crate::event::{EventPage, NewEvent, PageLimit, Recorded};
use crate::journal::{Journal, Reply, Swept};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, Owner};
use crate::session::{ListCursor, SessionInfo, SessionPage};
use crate::snapshot::Snapshot;
use crate::weights::Weights;

/// Makes the body of the next version from that of one.
type Step = Box<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

/// Which kinds of events a program knows, in which version, and how older versions become newer ones.
///
/// ```
/// use conjure_journal::Upcasts;
///
/// let upcasts = Upcasts::new()
///     .kind("greeting", 2)
///     .step("greeting", 1, |body| Ok([b"hello, ", body].concat()));
/// ```
#[derive(Default)]
pub struct Upcasts {
    kinds: BTreeMap<String, Kind>,
}

#[derive(Default)]
struct Kind {
    newest: u32,
    steps: BTreeMap<u32, Step>,
}

impl Upcasts {
    /// One that knows no kind, and so refuses every event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Events of this kind are known up to this version.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>, newest: u32) -> Self {
        self.kinds.entry(kind.into()).or_default().newest = newest;
        self
    }

    /// Makes events of this kind in version `from` those of the version after it. A version without a step is read as it
    /// is.
    #[must_use]
    pub fn step(
        mut self,
        kind: impl Into<String>,
        from: u32,
        step: impl Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        self.kinds.entry(kind.into()).or_default().steps.insert(from, Box::new(step));
        self
    }

    /// The event in the newest version that is known.
    fn apply(&self, mut event: Recorded) -> Result<Recorded, JournalError> {
        let known = self.kinds.get(&event.kind);
        let Some(kind) = known.filter(|kind| event.version <= kind.newest) else {
            return Err(JournalError::FutureEvent {
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

/// A journal whose events are read in the newest version of their kind. Events that the program does not know are an
/// error (`FutureEvent`), since leaving one out would change what the others mean.
#[derive(Debug, Clone)]
pub struct Upcasting {
    journal: Arc<dyn Journal>,
    upcasts: Arc<Upcasts>,
}

impl Upcasting {
    /// This journal, read with these steps.
    #[must_use]
    pub fn new(journal: Arc<dyn Journal>, upcasts: Upcasts) -> Self {
        Self { journal, upcasts: Arc::new(upcasts) }
    }
}

impl Journal for Upcasting {
    fn load(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Reply<EventPage> {
        let page = self.journal.load(key, from, limit);
        let upcasts = Arc::clone(&self.upcasts);
        async move {
            let EventPage { events, total } = page.await?;
            let events = events.into_iter().map(|event| upcasts.apply(event)).collect::<Result<_, _>>()?;
            Ok(EventPage { events, total })
        }
        .boxed()
    }

    fn create(&self, key: &SessionKey) -> Reply<()> {
        self.journal.create(key)
    }

    fn append_charged(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        charges: Vec<Charge>,
    ) -> Reply<u64> {
        self.journal.append_charged(key, expected_seq, epoch, events, charges)
    }

    fn charge(&self, tenant: &TenantId, charges: Vec<Charge>) -> Reply<()> {
        self.journal.charge(tenant, charges)
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<Vec<u64>> {
        self.journal.counters(tenant, names)
    }

    fn counter_names(&self, tenant: &TenantId) -> Reply<Vec<String>> {
        self.journal.counter_names(tenant)
    }

    fn forget_counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<u64> {
        self.journal.forget_counters(tenant, names)
    }

    fn session_count(&self, tenant: &TenantId) -> Reply<u64> {
        self.journal.session_count(tenant)
    }

    fn recorded_bytes(&self, tenant: &TenantId) -> Reply<u64> {
        self.journal.recorded_bytes(tenant)
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> Reply<()> {
        self.journal.save_snapshot(key, epoch, snapshot)
    }

    fn snapshot(&self, key: &SessionKey) -> Reply<Option<Snapshot>> {
        self.journal.snapshot(key)
    }

    fn acquire(&self, key: &SessionKey, owner: &Owner, time: Duration) -> Reply<Lease> {
        self.journal.acquire(key, owner, time)
    }

    fn renew(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> Reply<Lease> {
        self.journal.renew(key, epoch, time)
    }

    fn release(&self, key: &SessionKey, epoch: Epoch) -> Reply<()> {
        self.journal.release(key, epoch)
    }

    fn session(&self, key: &SessionKey) -> Reply<SessionInfo> {
        self.journal.session(key)
    }

    fn sessions(&self, tenant: &TenantId, after: Option<ListCursor>, limit: u32) -> Reply<SessionPage> {
        self.journal.sessions(tenant, after, limit)
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Reply<Vec<TenantId>> {
        self.journal.tenants(after, limit)
    }

    fn delete_session(&self, key: &SessionKey) -> Reply<()> {
        self.journal.delete_session(key)
    }

    fn delete_unchanged(&self, key: &SessionKey, events: u64) -> Reply<()> {
        self.journal.delete_unchanged(key, events)
    }

    fn delete_tenant(&self, tenant: &TenantId) -> Reply<u64> {
        self.journal.delete_tenant(tenant)
    }

    fn sweep(&self) -> Reply<Swept> {
        self.journal.sweep()
    }

    fn set_weights(&self, weights: Weights) {
        self.journal.set_weights(weights);
    }
}
