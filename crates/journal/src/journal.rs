//! The trait of all journals.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use futures_util::future::BoxFuture;

use crate::counter::CounterIncrement;
use crate::error::JournalError;
use crate::event::{EventPage, NewEvent, PageLimit, RecordedEvent};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, LeaseOwner};
use crate::record::Records;
use crate::session::Snapshot;
use crate::session::{ListCursor, SessionInfo, SessionPage};
use crate::session_query::{RunningPage, SessionQuery};
use crate::session_row::AppendBatch;
use crate::tenant_weights::TenantWeights;

/// The future of a call. It borrows nothing, so an actor may keep it in its state.
pub type JournalFuture<T> = BoxFuture<'static, Result<T, JournalError>>;

/// Stores the event logs of sessions.
/// A call is submitted when its method is called, not when its future is first polled. Calls that change a session run in the order of
/// their submission, so a writer may append again before the last append was acknowledged. The call of a dropped future may have run
/// completely or not at all; the session must then be read again.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Creates a session without events, with the epoch [`Epoch::NONE`].
    ///
    /// # Errors
    /// `Exists`.
    fn create(&self, key: &SessionKey) -> JournalFuture<()>;

    /// Appends all of `events`, if the session has exactly `expected_seq` events and `epoch` is its epoch. Returns the new number of events
    /// once they are durable. Without events it only checks.
    ///
    /// # Errors
    /// `NotFound`, `StaleEpoch`, then `Conflict`, in this order; `TooLarge`; `Overloaded`; and disk errors.
    fn append(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
    ) -> JournalFuture<u64> {
        self.append_batch(key, expected_seq, epoch, AppendBatch::new(events))
    }

    /// Like [`Journal::append`], and increments counters of the session's tenant in the same transaction. A counter stops at
    /// [`MAX_COUNT`](crate::MAX_COUNT). Without events no counter changes.
    ///
    /// # Errors
    /// As for [`Journal::append`].
    fn append_with_counters(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        increments: Vec<CounterIncrement>,
    ) -> JournalFuture<u64> {
        let batch = AppendBatch::new(events).with_increments(increments);
        self.append_batch(key, expected_seq, epoch, batch)
    }

    /// Like [`Journal::append_with_counters`], and stores the session's row in the same transaction. Without events it stores the row alone,
    /// under the same conditions, if there is one.
    ///
    /// # Errors
    /// As for [`Journal::append`].
    fn append_batch(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        batch: AppendBatch,
    ) -> JournalFuture<u64>;

    /// Increments counters of the tenant without an append: all of them or none, and before all later calls of the tenant. The tenant needs
    /// no session.
    ///
    /// # Errors
    /// `TooLarge`; `Overloaded`; and disk errors.
    fn increment_counters(&self, tenant: &TenantId, increments: Vec<CounterIncrement>) -> JournalFuture<()>;

    /// The tenant's counters of these names, in order; 0 for one that was never incremented. Counters outlive the sessions, and are deleted
    /// with their tenant.
    ///
    /// # Errors
    /// Disk errors.
    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<Vec<u64>>;

    /// The names of the tenant's counters, sorted.
    ///
    /// # Errors
    /// Disk errors.
    fn list_counters(&self, tenant: &TenantId) -> JournalFuture<Vec<String>>;

    /// Deletes these counters of the tenant. Returns how many of them existed.
    ///
    /// # Errors
    /// Disk errors.
    fn delete_counters(&self, tenant: &TenantId, names: Vec<String>) -> JournalFuture<u64>;

    /// How many sessions the tenant has.
    ///
    /// # Errors
    /// Disk errors.
    fn session_count(&self, tenant: &TenantId) -> JournalFuture<u64>;

    /// The approximate size of the tenant's sessions, events, snapshots and records, in bytes.
    ///
    /// It counts bodies, the names of kinds, and [`ROW_BYTES`](crate::ROW_BYTES) for each row. Bodies in a directory of the tenant, like
    /// large bodies in SQLite, do not count.
    ///
    /// # Errors
    /// Disk errors.
    fn stored_bytes(&self, tenant: &TenantId) -> JournalFuture<u64>;

    /// Reads the events from the sequence number `from` on, within `limit`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when events are damaged or missing.
    fn read(&self, key: &SessionKey, from: u64, limit: PageLimit) -> JournalFuture<EventPage>;

    /// Saves a snapshot. It replaces the last one, unless that one covers more events.
    ///
    /// # Errors
    /// `NotFound`; `StaleEpoch`; `Conflict` when it covers more events than exist; `TooLarge`; `Overloaded`.
    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> JournalFuture<()>;

    /// The last snapshot.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when it is damaged.
    fn snapshot(&self, key: &SessionKey) -> JournalFuture<Option<Snapshot>>;

    /// Acquires a lease of the session for `time`, with a new epoch. All earlier epochs become stale. The holder may acquire it again.
    ///
    /// # Errors
    /// `NotFound`; `LeaseHeld` when another owner's lease has not expired.
    fn acquire_lease(&self, key: &SessionKey, owner: &LeaseOwner, time: Duration) -> JournalFuture<Lease>;

    /// Extends the lease of this epoch to `time` from now. This also works for an expired lease, if no owner has acquired the
    /// session since.
    ///
    /// # Errors
    /// `NotFound`; `StaleEpoch` when it was acquired again or released.
    fn renew_lease(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> JournalFuture<Lease>;

    /// Releases the lease of this epoch. The epoch becomes stale.
    ///
    /// # Errors
    /// `NotFound`; `StaleEpoch` when it was acquired again or released.
    fn release_lease(&self, key: &SessionKey, epoch: Epoch) -> JournalFuture<()>;

    /// Describes a session.
    ///
    /// # Errors
    /// `NotFound`.
    fn session(&self, key: &SessionKey) -> JournalFuture<SessionInfo>;

    /// Lists the tenant's sessions, the newest first, at most `limit` (1 to 1,000) of them. A session that exists all the time is on exactly
    /// one page.
    ///
    /// # Errors
    /// Disk errors. A tenant without sessions has an empty page.
    fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
    ) -> JournalFuture<SessionPage> {
        self.query_sessions(tenant, SessionQuery { after, limit, ..SessionQuery::default() })
    }

    /// Lists the tenant's sessions that match. A session that exists all the time and keeps its status is on exactly one page.
    ///
    /// # Errors
    /// As for [`Journal::sessions`].
    fn query_sessions(&self, tenant: &TenantId, query: SessionQuery) -> JournalFuture<SessionPage>;

    /// Lists the sessions of all tenants whose row has the status [`RowStatus::Running`](crate::RowStatus::Running), the oldest first, at most
    /// `limit` (1 to 1,000) of them. Other sessions cost nothing.
    ///
    /// # Errors
    /// Disk errors.
    fn running_sessions(&self, after: Option<ListCursor>, limit: u32) -> JournalFuture<RunningPage>;

    /// Lists the tenants with sessions, sorted, those after `after`, at most `limit` (1 to 1,000) of them.
    ///
    /// # Errors
    /// Disk errors.
    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> JournalFuture<Vec<TenantId>>;

    /// Deletes a session. Its space is freed later, even if this process ends first.
    ///
    /// # Errors
    /// `NotFound`.
    fn delete_session(&self, key: &SessionKey) -> JournalFuture<()>;

    /// Deletes a session if it still has exactly this number of events.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when it has another number of events, and is not deleted.
    fn delete_if_unchanged(&self, key: &SessionKey, events: u64) -> JournalFuture<()>;

    /// Deletes all sessions of a tenant, like [`Journal::delete_session`], its counters and its records. Returns the number of sessions.
    ///
    /// # Errors
    /// Disk errors.
    fn delete_tenant(&self, tenant: &TenantId) -> JournalFuture<u64>;

    /// Frees unreferenced data: of deleted sessions, of replaced snapshots, of crashes.
    ///
    /// # Errors
    /// Disk errors; a part may have been freed.
    fn sweep(&self) -> JournalFuture<SweepReport>;

    /// The records of the same database.
    fn records(&self) -> Arc<dyn Records>;

    /// Sets the weights by which tenants share the journal when calls wait. Later changes of the weights apply too.
    ///
    /// Without it, all tenants have the same weight. It delays calls but drops none, and the order within a session stays. The weights are
    /// not stored: set them again after opening the journal.
    fn set_weights(&self, weights: TenantWeights);
}

/// The result of [`Journal::sweep`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The number of freed large bodies.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Reads all events from the sequence number `from` on, page by page. Events that are appended meanwhile may be included.
///
/// # Errors
/// As for [`Journal::read`].
pub async fn read_all(
    journal: &dyn Journal,
    key: &SessionKey,
    from: u64,
) -> Result<Vec<RecordedEvent>, JournalError> {
    let mut events = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next {
        let page = journal.read(key, from, PageLimit::default()).await?;
        next = page.next();
        events.extend(page.events);
    }
    Ok(events)
}
