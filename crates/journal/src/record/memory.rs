//! Records in memory: for tests, and for data that ends with its process.
//!
//! State: all records, behind one lock that is held briefly. It is dropped with the last clone.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::{Clock, SystemClock, TenantId, Timestamp, lock};
use futures_util::FutureExt as _;

use super::error::RecordError;
use super::key::{RecordKey, RecordKind, RecordScope};
use super::query::{Direction, MAX_PAGE_BYTES, RecordOrder, RecordPage, RecordQuery};
use super::records::{RecordFuture, Records};
use super::row::{IndexValue, NewRecord, Record, RecordContent};
use super::write::{RecordWrite, check_writes};
use crate::event::ROW_BYTES;
use crate::session::MAX_LIST_ENTRIES;

/// Records in memory. Clones share them. A query scans all records of its kind.
#[derive(Clone)]
pub struct MemoryRecords {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<RecordsState>>,
}

#[derive(Clone, Default)]
struct RecordsState {
    /// The number of records ever inserted.
    inserted: u64,
    records: BTreeMap<RecordKey, Record>,
}

/// The key by which a query sorts records.
type SortKey = (Option<IndexValue>, Timestamp, u64);

impl MemoryRecords {
    /// No records, with the system clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// No records, with this clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Deletes the records of a tenant.
    pub(crate) fn delete_tenant(&self, tenant: &TenantId) {
        self.lock().records.retain(|key, _| key.scope().tenant() != Some(tenant));
    }

    /// The approximate size of the tenant's records.
    pub(crate) fn stored_bytes(&self, tenant: &TenantId) -> u64 {
        let state = self.lock();
        let tenant_records =
            state.records.values().filter(|record| record.key.scope().tenant() == Some(tenant));
        tenant_records.map(|record| ROW_BYTES + record.content.body.len() as u64).sum()
    }

    /// Runs the call at once and returns a ready future.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut RecordsState) -> Result<T, RecordError>,
    ) -> RecordFuture<T> {
        let result = work(&mut self.lock());
        std::future::ready(result).boxed()
    }

    fn lock(&self) -> MutexGuard<'_, RecordsState> {
        lock(&self.state)
    }
}

impl Default for MemoryRecords {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordsState {
    fn write(&mut self, write: RecordWrite, now: Timestamp) -> Result<Option<Record>, RecordError> {
        match write {
            RecordWrite::Insert(record) => self.insert(record, now).map(Some),
            RecordWrite::Replace { key, expected_version, content } => {
                self.replace(key, expected_version, content, now).map(Some)
            }
            RecordWrite::Delete { key, expected_version } => self.delete(&key, expected_version),
        }
    }

    fn insert(&mut self, new: NewRecord, now: Timestamp) -> Result<Record, RecordError> {
        let NewRecord { key, content } = new;
        if self.records.contains_key(&key) {
            return Err(RecordError::Exists { key });
        }
        self.check_name(&key, &content)?;
        self.inserted += 1;
        let number = self.inserted;
        let record =
            Record { key: key.clone(), version: 1, content, created_at: now, updated_at: now, number };
        self.records.insert(key, record.clone());
        Ok(record)
    }

    fn replace(
        &mut self,
        key: RecordKey,
        expected: u64,
        content: RecordContent,
        now: Timestamp,
    ) -> Result<Record, RecordError> {
        let Some(current) = self.records.get(&key).map(|record| record.version) else {
            return Err(RecordError::NotFound { key });
        };
        if current != expected {
            return Err(RecordError::VersionConflict { key, expected, current });
        }
        self.check_name(&key, &content)?;
        match self.records.get_mut(&key) {
            Some(record) => {
                (record.version, record.content, record.updated_at) = (current + 1, content, now);
                Ok(record.clone())
            }
            None => Err(RecordError::NotFound { key }),
        }
    }

    fn delete(&mut self, key: &RecordKey, expected: Option<u64>) -> Result<Option<Record>, RecordError> {
        let Some(record) = self.records.get(key) else { return Ok(None) };
        if let Some(expected) = expected.filter(|expected| *expected != record.version) {
            let current = record.version;
            return Err(RecordError::VersionConflict { key: key.clone(), expected, current });
        }
        Ok(self.records.remove(key))
    }

    /// Checks that no other record has the content's name.
    fn check_name(&self, key: &RecordKey, content: &RecordContent) -> Result<(), RecordError> {
        let Some(name) = &content.unique_name else { return Ok(()) };
        match self.by_name(key.scope(), key.kind(), name) {
            Some(other) if other.key != *key => Err(RecordError::NameTaken {
                scope: key.scope().clone(),
                kind: key.kind().clone(),
                name: name.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn by_name(&self, scope: &RecordScope, kind: &RecordKind, name: &str) -> Option<&Record> {
        self.records.values().find(|record| {
            let matches_kind = record.key.scope() == scope && record.key.kind() == kind;
            matches_kind && record.content.unique_name.as_deref() == Some(name)
        })
    }

    fn query(&self, query: &RecordQuery) -> RecordPage {
        let mut found: Vec<(SortKey, &Record)> = self
            .records
            .values()
            .filter(|record| record.key.scope() == &query.scope && record.key.kind() == &query.kind)
            .filter(|record| query.filters.iter().all(|(name, value)| record.index(name) == Some(value)))
            .filter_map(|record| Some((sort_key(&query.order, record)?, record)))
            .collect();
        found.sort_by(|(one, _), (other, _)| match query.direction {
            Direction::Ascending => one.cmp(other),
            Direction::Descending => other.cmp(one),
        });
        if let Some(after) = &query.after {
            let after = (after.value.clone(), after.created_at, after.number);
            found.retain(|(place, _)| match query.direction {
                Direction::Ascending => *place > after,
                Direction::Descending => *place < after,
            });
        }
        let limit = query.limit.clamp(1, MAX_LIST_ENTRIES) as usize;
        let mut page = RecordPage { records: Vec::new(), next: None };
        let mut bytes = 0;
        for (_, record) in found {
            bytes += record.content.body.len();
            if page.records.len() == limit || (bytes > MAX_PAGE_BYTES && !page.records.is_empty()) {
                page.next = page.records.last().and_then(|last| query.cursor_at(last));
                break;
            }
            page.records.push(record.clone());
        }
        page
    }
}

/// The sort key of a record; `None` if the record is out of the bounds.
fn sort_key(order: &RecordOrder, record: &Record) -> Option<SortKey> {
    let value = match order {
        RecordOrder::CreatedAt { from, to } => is_between(&record.created_at, from, to).then_some(None)?,
        RecordOrder::Index { name, from, to } => {
            Some(record.index(name).filter(|value| is_between(*value, from, to))?.clone())
        }
    };
    Some((value, record.created_at, record.number))
}

fn is_between<T: Ord>(value: &T, from: &Bound<T>, to: &Bound<T>) -> bool {
    let is_within_bound = match from {
        Bound::Included(from) => value >= from,
        Bound::Excluded(from) => value > from,
        Bound::Unbounded => true,
    };
    is_within_bound
        && match to {
            Bound::Included(to) => value <= to,
            Bound::Excluded(to) => value < to,
            Bound::Unbounded => true,
        }
}

impl Records for MemoryRecords {
    fn transact(&self, writes: Vec<RecordWrite>) -> RecordFuture<Vec<Option<Record>>> {
        let now = self.clock.timestamp();
        self.call(|state| {
            check_writes(&writes)?;
            if let [_] = &writes[..] {
                // A single write changes nothing when it fails.
                return writes.into_iter().map(|write| state.write(write, now)).collect();
            }
            let mut changed = state.clone();
            let written = writes.into_iter().map(|write| changed.write(write, now));
            let written = written.collect::<Result<Vec<_>, _>>()?;
            *state = changed;
            Ok(written)
        })
    }

    fn get(&self, key: &RecordKey) -> RecordFuture<Option<Record>> {
        self.call(|state| Ok(state.records.get(key).cloned()))
    }

    fn get_by_name(
        &self,
        scope: &RecordScope,
        kind: &RecordKind,
        name: &str,
    ) -> RecordFuture<Option<Record>> {
        self.call(|state| Ok(state.by_name(scope, kind, name).cloned()))
    }

    fn query(&self, query: RecordQuery) -> RecordFuture<RecordPage> {
        self.call(|state| {
            query.check()?;
            Ok(state.query(&query))
        })
    }
}

impl fmt::Debug for MemoryRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.lock().records.len();
        f.debug_struct("MemoryRecords").field("records", &records).finish_non_exhaustive()
    }
}
