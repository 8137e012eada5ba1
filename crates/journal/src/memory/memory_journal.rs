//! The journal in memory: for tests, and for sessions that end with their process.
//!
//! State: all data, behind one lock that is held briefly. It is dropped with the last clone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock, SessionId, SystemClock, TenantId, Timestamp, lock};
use futures_util::FutureExt as _;

use super::memory_session::{MemorySession, after};
use crate::counter::{CounterIncrement, MAX_COUNT, check_increments};
use crate::error::JournalError;
use crate::event::{EventPage, PageLimit, check_events};
use crate::journal::{Journal, JournalFuture, SweepReport};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};
use crate::record::{Direction, MemoryRecords, Records};
use crate::session::Snapshot;
use crate::session::{ListCursor, MAX_LIST_ENTRIES, SessionInfo, SessionPage};
use crate::session_query::{RunningPage, SessionQuery};
use crate::session_row::{AppendBatch, RowStatus};
use crate::tenant_weights::TenantWeights;

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

/// Cuts a list to its limit. Returns the cursor of the next page.
fn truncate<T>(found: &mut Vec<(u64, T)>, limit: u32) -> Option<ListCursor> {
    let limit = limit.clamp(1, MAX_LIST_ENTRIES) as usize;
    let is_cut = found.len() > limit;
    found.truncate(limit);
    found.last().filter(|_| is_cut).map(|(number, _)| ListCursor::from_number(*number))
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
