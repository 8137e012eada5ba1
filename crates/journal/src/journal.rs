//! The trait that every implementation has.

use std::fmt;
use std::time::Duration;

use conjure_base::TenantId;
use futures_util::future::BoxFuture;

use crate::charge::Charge;
use crate::error::JournalError;
use crate::event::{EventPage, NewEvent, PageLimit, Recorded};
use crate::key::{Epoch, SessionKey};
use crate::lease::{Lease, Owner};
use crate::session::{ListCursor, SessionInfo, SessionPage};
use crate::snapshot::Snapshot;
use crate::weights::Weights;

/// What a call will come to. It borrows nothing, so an actor may keep it in its state.
pub type Reply<T> = BoxFuture<'static, Result<T, JournalError>>;

/// Records the events of sessions, in order.
///
/// A call is submitted when its method is called, not when its future is first polled, and calls that change a session
/// are carried out in the order in which they were submitted: a writer may append again before the last append was
/// acknowledged. A future that is dropped may have happened or not, never a part of it; the session is then loaded anew.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Begins a session without events, in the epoch [`Epoch::NONE`].
    ///
    /// # Errors
    /// `Exists`.
    fn create(&self, key: &SessionKey) -> Reply<()>;

    /// Appends all of `events`, or none of them, when the session holds exactly `expected_seq` events and `epoch` is
    /// its epoch. Returns how many it holds afterwards, once they are durable. Without events it only checks.
    ///
    /// # Errors
    /// `NotFound`, `StaleEpoch`, then `Conflict`, in this order; `TooLarge`; `Overloaded`; and what the disk says.
    fn append(&self, key: &SessionKey, expected_seq: u64, epoch: Epoch, events: Vec<NewEvent>) -> Reply<u64> {
        self.append_charged(key, expected_seq, epoch, events, Vec::new())
    }

    /// The same, and adds `charges` to counters of the session's tenant in the same transaction: they are charged exactly when
    /// the events are appended. A counter stops at [`LARGEST_COUNT`](crate::LARGEST_COUNT). Without events nothing is charged.
    ///
    /// # Errors
    /// As for [`Journal::append`].
    fn append_charged(
        &self,
        key: &SessionKey,
        expected_seq: u64,
        epoch: Epoch,
        events: Vec<NewEvent>,
        charges: Vec<Charge>,
    ) -> Reply<u64>;

    /// Adds to counters of the tenant what no event is appended for, in the way of [`Journal::append_charged`]: all of it or
    /// nothing, and before whatever is submitted for the tenant later. Sessions need not be there.
    ///
    /// # Errors
    /// `TooLarge`; `Overloaded`; and what the disk says.
    fn charge(&self, tenant: &TenantId, charges: Vec<Charge>) -> Reply<()>;

    /// The tenant's counters of these names, in their order; 0 for one that was never charged. They outlive the sessions that
    /// charged them, and go with their tenant.
    ///
    /// # Errors
    /// What the disk says.
    fn counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<Vec<u64>>;

    /// The names of the tenant's counters, sorted: of all that were ever charged, and not forgotten.
    ///
    /// # Errors
    /// What the disk says.
    fn counter_names(&self, tenant: &TenantId) -> Reply<Vec<String>>;

    /// Forgets these counters of the tenant: they begin at 0 again. How many of them there were.
    ///
    /// # Errors
    /// What the disk says.
    fn forget_counters(&self, tenant: &TenantId, names: Vec<String>) -> Reply<u64>;

    /// How many sessions the tenant has.
    ///
    /// # Errors
    /// What the disk says.
    fn session_count(&self, tenant: &TenantId) -> Reply<u64>;

    /// How many bytes the tenant's sessions, their events and their snapshots take, about: of bodies, the names of kinds, and
    /// [`ROW_BYTES`](crate::ROW_BYTES) for each of them, as one transaction has changed them. What lies in a folder of the tenant's own, as large
    /// bodies do in SQLite, is not among them.
    ///
    /// # Errors
    /// What the disk says.
    fn recorded_bytes(&self, tenant: &TenantId) -> Reply<u64>;

    /// The events from the sequence number `from` on, within `limit`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when they are damaged, or fewer than were recorded.
    fn load(&self, key: &SessionKey, from: u64, limit: PageLimit) -> Reply<EventPage>;

    /// Keeps a snapshot in place of the last one, unless that one covers more.
    ///
    /// # Errors
    /// `NotFound`; `StaleEpoch`; `Conflict` when it covers more events than there are; `TooLarge`; `Overloaded`.
    fn save_snapshot(&self, key: &SessionKey, epoch: Epoch, snapshot: Snapshot) -> Reply<()>;

    /// The last snapshot.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when it is damaged.
    fn snapshot(&self, key: &SessionKey) -> Reply<Option<Snapshot>>;

    /// Leases the session for `time`, in a new epoch: all former ones are stale from now on. Who holds the lease may
    /// take it again.
    ///
    /// # Errors
    /// `NotFound`; `LeaseHeld` when somebody else's lease has not ended.
    fn acquire(&self, key: &SessionKey, owner: &Owner, time: Duration) -> Reply<Lease>;

    /// Lets the lease of this epoch last for `time` from now, also when it has ended and nobody took it.
    ///
    /// # Errors
    /// `NotFound`; `StaleEpoch` when it was taken or released.
    fn renew(&self, key: &SessionKey, epoch: Epoch, time: Duration) -> Reply<Lease>;

    /// Gives the lease of this epoch back. The epoch is stale from now on.
    ///
    /// # Errors
    /// `NotFound`; `StaleEpoch` when it was taken or released.
    fn release(&self, key: &SessionKey, epoch: Epoch) -> Reply<()>;

    /// What is known of a session.
    ///
    /// # Errors
    /// `NotFound`.
    fn session(&self, key: &SessionKey) -> Reply<SessionInfo>;

    /// The tenant's sessions, the newest first, at most `limit` (1 to 1,000) of them. Every session that is there all
    /// the time is on exactly one page.
    ///
    /// # Errors
    /// What the disk says. A tenant without sessions has an empty page.
    fn sessions(&self, tenant: &TenantId, after: Option<ListCursor>, limit: u32) -> Reply<SessionPage>;

    /// The tenants that have sessions, sorted, those after `after`, at most `limit` (1 to 1,000) of them.
    ///
    /// # Errors
    /// What the disk says.
    fn tenants(&self, after: Option<&TenantId>, limit: u32) -> Reply<Vec<TenantId>>;

    /// Forgets a session. It is gone when this is acknowledged; what it occupied is freed after that, also when the
    /// process ends in between.
    ///
    /// # Errors
    /// `NotFound`.
    fn delete_session(&self, key: &SessionKey) -> Reply<()>;

    /// Forgets a session in the same way, in which nothing was recorded since it was looked at: it held so many `events` then.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when it holds more by now, and is kept.
    fn delete_unchanged(&self, key: &SessionKey, events: u64) -> Reply<()>;

    /// Forgets all sessions of a tenant, and its counters, in the way of [`Journal::delete_session`]. How many there were.
    ///
    /// # Errors
    /// What the disk says.
    fn delete_tenant(&self, tenant: &TenantId) -> Reply<u64>;

    /// Frees what nothing refers to any more: of deleted sessions, of replaced snapshots, of crashes.
    ///
    /// # Errors
    /// What the disk says; a part may have been freed.
    fn sweep(&self) -> Reply<Swept>;

    /// From now on tenants have their part by these weights, also as they change, where calls wait for each other: in what a journal
    /// does, by what calls cost it. Before, all weigh the same. Nothing is left undone for it, and what one session is asked is done
    /// in its order. It is not recorded: whoever opens the journal says it again.
    fn set_weights(&self, weights: Weights);
}

/// What [`Journal::sweep`] has freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Large bodies.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All events from the sequence number `from` on, page by page. What is appended meanwhile may be among them.
///
/// # Errors
/// As for [`Journal::load`].
pub async fn load_all(
    journal: &dyn Journal,
    key: &SessionKey,
    from: u64,
) -> Result<Vec<Recorded>, JournalError> {
    let mut events = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next {
        let page = journal.load(key, from, PageLimit::default()).await?;
        next = page.next();
        events.extend(page.events);
    }
    Ok(events)
}
