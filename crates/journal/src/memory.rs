//! The journal in memory: for tests, and for hosts whose sessions end with them.
//!
//! State: all of it, behind one lock that is held for moments. It is forgotten with the last clone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, SessionId, SystemClock, TenantId, Timestamp};
use futures_util::FutureExt as _;

use crate::charge::{Charge, LARGEST_COUNT, check_charges};
use crate::error::JournalError;
use crate::event::{EventPage, LONGEST_KIND, NewEvent, PageLimit, ROW_BYTES, Recorded};
use crate::journal::{Journal, Reply, Swept};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, Owner};
use crate::session::{LARGEST_LIST, ListCursor, SessionInfo, SessionPage};
use crate::snapshot::Snapshot;
use crate::weights::Weights;

/// Events in memory. Clones are the same journal.
#[derive(Clone)]
pub struct MemoryJournal {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// How many sessions were ever created, which orders them in lists.
    created: u64,
    tenants: BTreeMap<TenantId, BTreeMap<SessionId, Session>>,
    counters: BTreeMap<TenantId, BTreeMap<String, u64>>,
}

struct Session {
    number: u64,
    events: Vec<Recorded>,
    epoch: Epoch,
    lease: Option<Lease>,
    snapshot: Option<Snapshot>,
    created: Timestamp,
    updated: Timestamp,
}

impl MemoryJournal {
    /// An empty one, with the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty one whose leases end by this clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Does it at once. Nothing in there waits, so the future that is returned is ready.
    fn call<T: Send + 'static>(&self, work: impl FnOnce(&mut State) -> Result<T, JournalError>) -> Reply<T> {
        let result = work(&mut self.lock());
        std::future::ready(result).boxed()
    }

    /// The same with one session.
    fn call_session<T: Send + 'static>(
        &self,
        key: &SessionKey,
        work: impl FnOnce(&mut Session) -> Result<T, JournalError>,
    ) -> Reply<T> {
        self.call(|state| work(state.session(key)?))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn session(&mut self, key: &SessionKey) -> Result<&mut Session, JournalError> {
        let sessions = self.tenants.get_mut(&key.tenant);
        sessions
            .and_then(|sessions| sessions.get_mut(&key.session))
            .ok_or_else(|| JournalError::NotFound { session: key.clone() })
    }

    fn delete(&mut self, key: &SessionKey) -> Result<(), JournalError> {
        self.session(key)?;
        if let Some(sessions) = self.tenants.get_mut(&key.tenant) {
            sessions.remove(&key.session);
        }
        self.tenants.retain(|_, sessions| !sessions.is_empty());
        Ok(())
    }

    fn create(&mut self, key: &SessionKey, now: Timestamp) -> Result<(), JournalError> {
        let sessions = self.tenants.entry(key.tenant.clone()).or_default();
        if sessions.contains_key(&key.session) {
            return Err(JournalError::Exists { session: key.clone() });
        }
        self.created += 1;
        let session = Session {
            number: self.created,
            events: Vec::new(),
            epoch: Epoch::NONE,
            lease: None,
            snapshot: None,
            created: now,
            updated: now,
        };
        sessions.insert(key.session, session);
        Ok(())
    }
}

impl State {
    fn charge(&mut self, tenant: &TenantId, charges: Vec<Charge>) {
        for Charge { counter, amount } in charges {
            let counters = self.counters.entry(tenant.clone()).or_default();
            let count = counters.entry(counter.into_owned()).or_default();
            *count = count.saturating_add(amount).min(LARGEST_COUNT);
        }
    }
}

impl Session {
    fn total(&self) -> u64 {
        self.events.len() as u64
    }

    fn bytes(&self) -> u64 {
        let event = |event: &Recorded| ROW_BYTES + (event.kind.len() + event.body.len()) as u64;
        let snapshot = self.snapshot.as_ref().map_or(0, |snapshot| ROW_BYTES + snapshot.body.len() as u64);
        ROW_BYTES + self.events.iter().map(event).sum::<u64>() + snapshot
    }

    fn check_epoch(&self, epoch: Epoch) -> Result<(), JournalError> {
        if epoch == self.epoch {
            Ok(())
        } else {
            Err(JournalError::StaleEpoch { epoch, current: self.epoch })
        }
    }

    /// The lease, when this is its epoch.
    fn lease(&mut self, epoch: Epoch) -> Result<&mut Lease, JournalError> {
        self.check_epoch(epoch)?;
        let current = self.epoch;
        self.lease.as_mut().ok_or(JournalError::StaleEpoch { epoch, current })
    }

    fn append(
        &mut self,
        expected: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<u64, JournalError> {
        self.check_epoch(epoch)?;
        let found = self.total();
        if found != expected {
            return Err(JournalError::Conflict { expected, found });
        }
        if !events.is_empty() {
            self.updated = now;
        }
        let recorded = events.into_iter().zip(found..).map(|(event, seq)| {
            let NewEvent { kind, version, body } = event;
            Recorded { seq, epoch, kind: kind.into_owned(), version, body }
        });
        self.events.extend(recorded);
        Ok(self.total())
    }

    fn page(&self, from: u64, limit: PageLimit) -> EventPage {
        let mut events: Vec<Recorded> = Vec::new();
        let mut bytes = 0_usize;
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        for event in self.events.iter().skip(skipped) {
            bytes = bytes.saturating_add(event.body.len());
            let is_full = events.len() as u64 >= u64::from(limit.events) || bytes > limit.bytes;
            if is_full && !events.is_empty() {
                break;
            }
            events.push(event.clone());
        }
        EventPage { events, total: self.total() }
    }

    fn acquire(&mut self, owner: &Owner, now: Timestamp, time: Duration) -> Result<Lease, JournalError> {
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.owner != *owner && lease.until > now) {
            return Err(JournalError::LeaseHeld { owner: lease.owner.clone(), until: lease.until });
        }
        self.epoch = self.epoch.next();
        let lease = Lease { owner: owner.clone(), epoch: self.epoch, until: after(now, time) };
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    fn release(&mut self, epoch: Epoch) -> Result<(), JournalError> {
        self.lease(epoch)?;
        self.lease = None;
        self.epoch = self.epoch.next();
        Ok(())
    }

    fn save_snapshot(&mut self, epoch: Epoch, snapshot: Snapshot) -> Result<(), JournalError> {
        self.check_epoch(epoch)?;
        if snapshot.seq > self.total() {
            return Err(JournalError::Conflict { expected: snapshot.seq, found: self.total() });
        }
        if self.snapshot.as_ref().is_none_or(|last| last.seq <= snapshot.seq) {
            self.snapshot = Some(snapshot);
        }
        Ok(())
    }

    fn info(&self, session: SessionId) -> SessionInfo {
        SessionInfo {
            session,
            events: self.total(),
            epoch: self.epoch,
            lease: self.lease.clone(),
            snapshot: self.snapshot.as_ref().map(|snapshot| snapshot.seq),
            created: self.created,
            updated: self.updated,
        }
    }
}

fn after(now: Timestamp, time: Duration) -> Timestamp {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.millis().saturating_add(millis))
}

/// Refuses what no implementation takes.
pub(crate) fn check_events(events: &[NewEvent]) -> Result<(), JournalError> {
    match events.iter().map(|event| event.kind.len()).max() {
        Some(size) if size > LONGEST_KIND => {
            Err(JournalError::TooLarge { what: "the name of an event's kind", size, limit: LONGEST_KIND })
        }
        _ => Ok(()),
    }
}

impl Journal for MemoryJournal {
    fn create(&self, key: &SessionKey) -> Reply<()> {
        self.call(|state| state.create(key, self.clock.timestamp()))
    }

    fn append_charged(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        charges: Vec<Charge>,
    ) -> Reply<u64> {
        self.call(|state| {
            let session = state.session(key)?;
            check_events(&events)?;
            check_charges(&charges)?;
            let has_events = !events.is_empty();
            let total = session.append(expected_seq, epoch, events, self.clock.timestamp())?;
            if has_events {
                state.charge(&key.tenant, charges);
            }
            Ok(total)
        })
    }

    fn charge(&self, tenant: &TenantId, charges: Vec<Charge>) -> Reply<()> {
        self.call(|state| {
            check_charges(&charges)?;
            state.charge(tenant, charges);
            Ok(())
        })
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<Vec<u64>> {
        self.call(|state| {
            let known = state.counters.get(tenant);
            let count = |name: &String| known.and_then(|known| known.get(name)).copied().unwrap_or(0);
            Ok(names.iter().map(count).collect())
        })
    }

    fn counter_names(&self, tenant: &TenantId) -> Reply<Vec<String>> {
        self.call(|state| {
            Ok(state.counters.get(tenant).map(|known| known.keys().cloned().collect()).unwrap_or_default())
        })
    }

    fn forget_counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<u64> {
        self.call(|state| {
            let Some(known) = state.counters.get_mut(tenant) else { return Ok(0) };
            Ok(names.iter().filter(|name| known.remove(*name).is_some()).count() as u64)
        })
    }

    fn session_count(&self, tenant: &TenantId) -> Reply<u64> {
        self.call(|state| Ok(state.tenants.get(tenant).map_or(0, |sessions| sessions.len() as u64)))
    }

    fn recorded_bytes(&self, tenant: &TenantId) -> Reply<u64> {
        self.call(|state| {
            Ok(state.tenants.get(tenant).into_iter().flatten().map(|(_, session)| session.bytes()).sum())
        })
    }

    fn load(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Reply<EventPage> {
        self.call_session(key, |session| Ok(session.page(from, limit)))
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> Reply<()> {
        self.call_session(key, |session| session.save_snapshot(epoch, snapshot))
    }

    fn snapshot(&self, key: &SessionKey) -> Reply<Option<Snapshot>> {
        self.call_session(key, |session| Ok(session.snapshot.clone()))
    }

    fn acquire(&self, key: &SessionKey, owner: &Owner, time: Duration) -> Reply<Lease> {
        self.call_session(key, |session| session.acquire(owner, self.clock.timestamp(), time))
    }

    fn renew(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> Reply<Lease> {
        self.call_session(key, |session| {
            let lease = session.lease(epoch)?;
            lease.until = after(self.clock.timestamp(), time);
            Ok(lease.clone())
        })
    }

    fn release(&self, key: &SessionKey, epoch: Epoch) -> Reply<()> {
        self.call_session(key, |session| session.release(epoch))
    }

    fn session(&self, key: &SessionKey) -> Reply<SessionInfo> {
        self.call_session(key, |session| Ok(session.info(key.session)))
    }

    fn sessions(&self, tenant: &TenantId, after: Option<ListCursor>, limit: u32) -> Reply<SessionPage> {
        self.call(|state| {
            let before = after.map_or(u64::MAX, ListCursor::number);
            let mut found: Vec<(u64, SessionInfo)> = state
                .tenants
                .get(tenant)
                .into_iter()
                .flatten()
                .filter(|(_, session)| session.number < before)
                .map(|(id, session)| (session.number, session.info(*id)))
                .collect();
            found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
            let limit = limit.clamp(1, LARGEST_LIST) as usize;
            let is_cut = found.len() > limit;
            found.truncate(limit);
            let next = found.last().filter(|_| is_cut).map(|(number, _)| ListCursor::from_number(*number));
            Ok(SessionPage { sessions: found.into_iter().map(|(_, info)| info).collect(), next })
        })
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Reply<Vec<TenantId>> {
        self.call(|state| {
            let all = state.tenants.keys().filter(|tenant| after.is_none_or(|after| *tenant > after));
            Ok(all.take(limit.clamp(1, LARGEST_LIST) as usize).cloned().collect())
        })
    }

    fn delete_session(&self, key: &SessionKey) -> Reply<()> {
        self.call(|state| state.delete(key))
    }

    fn delete_unchanged(&self, key: &SessionKey, events: u64) -> Reply<()> {
        self.call(|state| {
            let found = state.session(key)?.total();
            if found != events {
                return Err(JournalError::Conflict { expected: events, found });
            }
            state.delete(key)
        })
    }

    fn delete_tenant(&self, tenant: &TenantId) -> Reply<u64> {
        self.call(|state| {
            state.counters.remove(tenant);
            Ok(state.tenants.remove(tenant).map_or(0, |sessions| sessions.len() as u64))
        })
    }

    fn sweep(&self) -> Reply<Swept> {
        self.call(|_| Ok(Swept::default()))
    }

    /// Nobody waits for anybody here.
    fn set_weights(&self, _: Weights) {}
}

impl fmt::Debug for MemoryJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenants = self.lock().tenants.len();
        f.debug_struct("MemoryJournal").field("tenants", &tenants).finish_non_exhaustive()
    }
}
