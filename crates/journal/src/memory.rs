//! The journal in memory: for tests, and for sessions that end with their process.
//!
//! State: all data, behind one lock that is held briefly. It is dropped with the last clone.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock, SessionId, SystemClock, TenantId, Timestamp, lock};
use futures_util::FutureExt as _;

use crate::counter::{CounterIncrement, MAX_COUNT, check_increments};
use crate::error::JournalError;
use crate::event::{EventPage, MAX_KIND_BYTES, NewEvent, PageLimit, ROW_BYTES, RecordedEvent};
use crate::journal::{Journal, JournalFuture, SweepReport};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};
use crate::record::{Direction, MemoryRecords, Records};
use crate::session::Snapshot;
use crate::session::{ListCursor, MAX_LIST_ENTRIES, SessionInfo, SessionPage};
use crate::session_query::{RunningPage, SessionQuery};
use crate::session_row::{AppendBatch, RowStatus, SessionRow};
use crate::weights::TenantWeights;

/// A journal in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryJournal {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<MemoryState>>,
    records: MemoryRecords,
}

#[derive(Default)]
struct MemoryState {
    /// The number of sessions ever created, which orders them in lists.
    created: u64,
    tenants: BTreeMap<TenantId, BTreeMap<SessionId, MemorySession>>,
    counters: BTreeMap<TenantId, BTreeMap<String, u64>>,
}

struct MemorySession {
    number: u64,
    events: Vec<RecordedEvent>,
    epoch: Epoch,
    lease: Option<Lease>,
    snapshot: Option<Snapshot>,
    created: Timestamp,
    updated: Timestamp,
    row: Option<SessionRow>,
}

impl MemoryJournal {
    /// An empty journal with the system clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty journal with this clock for leases.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let records = MemoryRecords::with_clock(Arc::clone(&clock));
        Self { clock, state: Arc::default(), records }
    }

    /// Runs the call at once and returns a ready future.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut MemoryState) -> Result<T, JournalError>,
    ) -> JournalFuture<T> {
        let result = work(&mut self.lock());
        std::future::ready(result).boxed()
    }

    /// Runs a call on one session.
    fn call_session<T: Send + 'static>(
        &self,
        key: &SessionKey,
        work: impl FnOnce(&mut MemorySession) -> Result<T, JournalError>,
    ) -> JournalFuture<T> {
        self.call(|state| work(state.session(key)?))
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        lock(&self.state)
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryState {
    fn session(&mut self, key: &SessionKey) -> Result<&mut MemorySession, JournalError> {
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
        // A clock that jumps back must not change the order of the sessions.
        let last = sessions.values().max_by_key(|session| session.number);
        let now = last.map_or(now, |last| last.created.max(now));
        self.created += 1;
        let session = MemorySession {
            number: self.created,
            events: Vec::new(),
            epoch: Epoch::NONE,
            lease: None,
            snapshot: None,
            created: now,
            updated: now,
            row: None,
        };
        sessions.insert(key.session, session);
        Ok(())
    }
}

impl MemoryState {
    fn increment(&mut self, tenant: &TenantId, increments: Vec<CounterIncrement>) {
        for CounterIncrement { counter, amount } in increments {
            let counters = self.counters.entry(tenant.clone()).or_default();
            let count = counters.entry(counter.into_owned()).or_default();
            *count = count.saturating_add(amount).min(MAX_COUNT);
        }
    }
}

impl MemorySession {
    fn total(&self) -> u64 {
        self.events.len() as u64
    }

    fn bytes(&self) -> u64 {
        let event = |event: &RecordedEvent| ROW_BYTES + (event.kind.len() + event.body.len()) as u64;
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
        row: Option<SessionRow>,
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
        if !events.is_empty() || row.is_some() {
            self.row = row;
        }
        let recorded = events.into_iter().zip(found..).map(|(event, seq)| {
            let NewEvent { kind, version, body } = event;
            RecordedEvent { seq, epoch, kind: kind.into_owned(), version, body }
        });
        self.events.extend(recorded);
        Ok(self.total())
    }

    fn page(&self, from: u64, limit: PageLimit) -> EventPage {
        let mut events: Vec<RecordedEvent> = Vec::new();
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

    fn acquire(&mut self, owner: &LeaseOwner, now: Timestamp, time: Duration) -> Result<Lease, JournalError> {
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

    fn matches(&self, query: &SessionQuery) -> bool {
        let status = self.row.as_ref().map(|row| row.status);
        let is_behind = query.after.is_none_or(|after| match query.direction {
            Direction::Ascending => self.number > after.number(),
            Direction::Descending => self.number < after.number(),
        });
        is_behind
            && query.created.contains(&self.created)
            && query.updated.contains(&self.updated)
            && (query.statuses.is_empty() || status.is_some_and(|status| query.statuses.contains(&status)))
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
            row: self.row.clone(),
        }
    }
}

fn after(now: Timestamp, time: Duration) -> Timestamp {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.millis().saturating_add(millis))
}

/// Cuts a list to its limit. Returns the cursor of the next page.
fn truncate<T>(found: &mut Vec<(u64, T)>, limit: u32) -> Option<ListCursor> {
    let limit = limit.clamp(1, MAX_LIST_ENTRIES) as usize;
    let is_cut = found.len() > limit;
    found.truncate(limit);
    found.last().filter(|_| is_cut).map(|(number, _)| ListCursor::from_number(*number))
}

/// Checks the limits of all implementations.
pub(crate) fn check_events(events: &[NewEvent]) -> Result<(), JournalError> {
    match events.iter().map(|event| event.kind.len()).max() {
        Some(size) if size > MAX_KIND_BYTES => {
            Err(JournalError::TooLarge { what: "the name of an event's kind", size, limit: MAX_KIND_BYTES })
        }
        _ => Ok(()),
    }
}

impl Journal for MemoryJournal {
    fn create(&self, key: &SessionKey) -> JournalFuture<()> {
        self.call(|state| state.create(key, self.clock.timestamp()))
    }

    fn append_batch(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        batch: AppendBatch,
    ) -> JournalFuture<u64> {
        self.call(|state| {
            let session = state.session(key)?;
            batch.check_row()?;
            let AppendBatch { events, increments, row } = batch;
            check_events(&events)?;
            check_increments(&increments)?;
            let has_events = !events.is_empty();
            let total = session.append(expected_seq, epoch, events, row, self.clock.timestamp())?;
            if has_events {
                state.increment(&key.tenant, increments);
            }
            Ok(total)
        })
    }

    fn increment_counters(&self, tenant: &TenantId, increments: Vec<CounterIncrement>) -> JournalFuture<()> {
        self.call(|state| {
            check_increments(&increments)?;
            state.increment(tenant, increments);
            Ok(())
        })
    }

    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<Vec<u64>> {
        self.call(|state| {
            let known = state.counters.get(tenant);
            let count = |name: &String| known.and_then(|known| known.get(name)).copied().unwrap_or(0);
            Ok(names.iter().map(count).collect())
        })
    }

    fn list_counters(&self, tenant: &TenantId) -> JournalFuture<Vec<String>> {
        self.call(|state| {
            Ok(state.counters.get(tenant).map(|known| known.keys().cloned().collect()).unwrap_or_default())
        })
    }

    fn delete_counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<u64> {
        self.call(|state| {
            let Some(known) = state.counters.get_mut(tenant) else { return Ok(0) };
            Ok(names.iter().filter(|name| known.remove(*name).is_some()).count() as u64)
        })
    }

    fn session_count(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.call(|state| Ok(state.tenants.get(tenant).map_or(0, |sessions| sessions.len() as u64)))
    }

    fn stored_bytes(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.call(|state| {
            let sessions = state.tenants.get(tenant).into_iter().flatten();
            let bytes: u64 = sessions.map(|(_, session)| session.bytes()).sum();
            Ok(bytes + self.records.stored_bytes(tenant))
        })
    }

    fn read(&self, key: &SessionKey, from: u64, limit: PageLimit) -> JournalFuture<EventPage> {
        self.call_session(key, |session| Ok(session.page(from, limit)))
    }

    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> JournalFuture<()> {
        self.call_session(key, |session| session.save_snapshot(epoch, snapshot))
    }

    fn snapshot(&self, key: &SessionKey) -> JournalFuture<Option<Snapshot>> {
        self.call_session(key, |session| Ok(session.snapshot.clone()))
    }

    fn acquire_lease(&self, key: &SessionKey, owner: &LeaseOwner, time: Duration) -> JournalFuture<Lease> {
        self.call_session(key, |session| session.acquire(owner, self.clock.timestamp(), time))
    }

    fn renew_lease(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> JournalFuture<Lease> {
        self.call_session(key, |session| {
            let lease = session.lease(epoch)?;
            lease.until = after(self.clock.timestamp(), time);
            Ok(lease.clone())
        })
    }

    fn release_lease(&self, key: &SessionKey, epoch: Epoch) -> JournalFuture<()> {
        self.call_session(key, |session| session.release(epoch))
    }

    fn session(&self, key: &SessionKey) -> JournalFuture<SessionInfo> {
        self.call_session(key, |session| Ok(session.info(key.session)))
    }

    fn query_sessions(&self, tenant: &TenantId, query: SessionQuery) -> JournalFuture<SessionPage> {
        self.call(|state| {
            let mut found: Vec<(u64, SessionInfo)> = state
                .tenants
                .get(tenant)
                .into_iter()
                .flatten()
                .filter(|(_, session)| session.matches(&query))
                .map(|(id, session)| (session.number, session.info(*id)))
                .collect();
            found.sort_by_key(|(number, _)| *number);
            if query.direction == Direction::Descending {
                found.reverse();
            }
            let next = truncate(&mut found, query.limit);
            Ok(SessionPage { sessions: found.into_iter().map(|(_, info)| info).collect(), next })
        })
    }

    fn running_sessions(&self, after: Option<ListCursor>, limit: u32) -> JournalFuture<RunningPage> {
        self.call(|state| {
            let after = after.map_or(0, ListCursor::number);
            let all = state.tenants.iter().flat_map(|(tenant, sessions)| {
                sessions.iter().map(move |(id, session)| (SessionKey::new(tenant.clone(), *id), session))
            });
            let is_running = |session: &MemorySession| {
                session.row.as_ref().is_some_and(|row| row.status == RowStatus::Running)
            };
            let running = all.filter(|(_, session)| session.number > after && is_running(session));
            let mut found: Vec<_> = running.map(|(key, session)| (session.number, key)).collect();
            found.sort_by_key(|(number, _)| *number);
            let next = truncate(&mut found, limit);
            Ok(RunningPage { sessions: found.into_iter().map(|(_, key)| key).collect(), next })
        })
    }

    fn records(&self) -> Arc<dyn Records> {
        Arc::new(self.records.clone())
    }

    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> JournalFuture<Vec<TenantId>> {
        self.call(|state| {
            let all = state.tenants.keys().filter(|tenant| after.is_none_or(|after| *tenant > after));
            Ok(all.take(limit.clamp(1, MAX_LIST_ENTRIES) as usize).cloned().collect())
        })
    }

    fn delete_session(&self, key: &SessionKey) -> JournalFuture<()> {
        self.call(|state| state.delete(key))
    }

    fn delete_if_unchanged(&self, key: &SessionKey, events: u64) -> JournalFuture<()> {
        self.call(|state| {
            let found = state.session(key)?.total();
            if found != events {
                return Err(JournalError::Conflict { expected: events, found });
            }
            state.delete(key)
        })
    }

    fn delete_tenant(&self, tenant: &TenantId) -> JournalFuture<u64> {
        self.call(|state| {
            state.counters.remove(tenant);
            self.records.delete_tenant(tenant);
            Ok(state.tenants.remove(tenant).map_or(0, |sessions| sessions.len() as u64))
        })
    }

    fn sweep(&self) -> JournalFuture<SweepReport> {
        self.call(|_| Ok(SweepReport::default()))
    }

    /// Calls never wait here, so weights have no effect.
    fn set_weights(&self, _: TenantWeights) {}
}

impl fmt::Debug for MemoryJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenants = self.lock().tenants.len();
        f.debug_struct("MemoryJournal").field("tenants", &tenants).finish_non_exhaustive()
    }
}
