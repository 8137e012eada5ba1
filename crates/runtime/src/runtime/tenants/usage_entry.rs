//! The last measured disk usage of a tenant, and the space that is reserved for contents that are about to be stored.
//! Space is reserved before a byte is written, so that concurrent operations cannot exceed the quota together.
//!
//! State, in memory: the last value and the reservations. A reservation stays until a scan that began after its content
//! was stored. A content counts as new, even if the store has it already.
//!
//! While a content is reserved, a scan may also see a part of it, which then counts twice. So the quota may refuse too
//! much for a moment, but never allows too much. The next scan sees contents that other processes store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, lock};

use crate::runtime::error::RuntimeError;
use crate::runtime::tenants::disk_measure::{DiskUsage, MeasuredUsage};
use crate::runtime::tenants::usage_roots::TenantRoots;

/// How long a value is fresh, so that no new scan is started.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// How long a value may be used while a new scan runs.
const USABLE_FOR: Duration = Duration::from_secs(60);

/// The last value of a tenant.
#[derive(Debug, Default)]
pub(super) struct TenantUsageEntry {
    /// Lets only one scan run at a time. All callers that wait for a scan before it starts share its result.
    pub(super) scan_lock: tokio::sync::Mutex<()>,
    /// How many scans were started.
    scans_started: AtomicU64,
    pub(super) last: Mutex<Option<Measured>>,
    /// Space reserved for contents that are being stored. Locked before `last`.
    pub(super) reservations: SpaceReservations,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) found: MeasuredUsage,
    /// The number of the scan, counted from 1.
    scan: u64,
    pub(super) fresh_until: Deadline,
    pub(super) usable_until: Deadline,
}

impl TenantUsageEntry {
    /// The result of a scan that starts after this call.
    pub(super) async fn scan(&self, roots: impl Into<TenantRoots>) -> Result<MeasuredUsage, RuntimeError> {
        let scans_started = self.scans_started.load(Ordering::Acquire);
        let _turn = self.scan_lock.lock().await;
        let last = *lock(&self.last);
        if let Some(last) = last.filter(|last| last.scan > scans_started) {
            return Ok(last.found);
        }
        let scan = self.start_scan();
        let found = roots.into().measure().await?;
        self.record_scan(scan, found);
        Ok(found)
    }

    /// Starts a scan, and returns its number.
    pub(super) fn start_scan(&self) -> u64 {
        self.scans_started.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn scans_started(&self) -> u64 {
        self.scans_started.load(Ordering::Acquire)
    }

    /// The number of the scan that measured the last value; 0 if there was none.
    pub(super) fn last_scan(&self) -> u64 {
        lock(&self.last).map_or(0, |last| last.scan)
    }

    pub(super) fn found(&self) -> MeasuredUsage {
        lock(&self.last).map(|last| last.found).unwrap_or_default()
    }

    pub(super) fn record_scan(&self, scan: u64, found: MeasuredUsage) {
        let measured = Measured {
            found,
            scan,
            fresh_until: SystemClock.deadline(FRESH_FOR),
            usable_until: SystemClock.deadline(USABLE_FOR),
        };
        *lock(&self.last) = Some(measured);
    }
}

/// The reserved space of a tenant.
#[derive(Debug, Default)]
pub(super) struct SpaceReservations(Mutex<ReservationTable>);

#[derive(Debug, Default)]
struct ReservationTable {
    last: u64,
    by_id: BTreeMap<u64, Reservation>,
}

#[derive(Debug, Clone, Copy)]
struct Reservation {
    usage: DiskUsage,
    until: ReleasedAt,
}

/// Until when a reservation counts in addition to the last scan.
#[derive(Debug, Clone, Copy)]
enum ReleasedAt {
    /// The content is being stored.
    WhenStored,
    /// The content was stored or abandoned. Every scan with a greater number has seen the outcome.
    AfterScan(u64),
}

/// Reserved space, released when this is dropped.
#[derive(Debug)]
pub(crate) struct ReservationGuard {
    usage_entry: Arc<TenantUsageEntry>,
    id: u64,
}

impl TenantUsageEntry {
    /// Reserves space if `check` accepts the sum of the last scan and all reservations.
    pub(super) fn reserve(
        self: &Arc<Self>,
        more: DiskUsage,
        check: impl FnOnce(DiskUsage) -> Result<(), RuntimeError>,
    ) -> Result<ReservationGuard, RuntimeError> {
        let mut reservations = lock(&self.reservations.0);
        // Read under the lock, so that no later reservation counts what this scan has seen.
        let scan = self.last_scan();
        let is_unseen = |reservation: &Reservation| match reservation.until {
            ReleasedAt::WhenStored => true,
            ReleasedAt::AfterScan(started) => scan <= started,
        };
        reservations.by_id.retain(|_, reservation| is_unseen(reservation));
        let sum = reservations.by_id.values().fold(more, |sum, reservation| sum.plus(reservation.usage));
        check(sum)?;
        reservations.last += 1;
        let id = reservations.last;
        reservations.by_id.insert(id, Reservation { usage: more, until: ReleasedAt::WhenStored });
        Ok(ReservationGuard { usage_entry: Arc::clone(self), id })
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        let mut reservations = lock(&self.usage_entry.reservations.0);
        let started = self.usage_entry.scans_started();
        if let Some(reservation) = reservations.by_id.get_mut(&self.id) {
            reservation.until = ReleasedAt::AfterScan(started);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_ask_while_one_walks_have_the_next_walk_together() {
        let dir = tempfile::tempdir().unwrap();
        let usage_entry = TenantUsageEntry::default();
        let scans = |turn| {
            let all =
                futures_util::future::join_all((0..40).map(|_| usage_entry.scan(dir.path().to_owned())));
            futures_util::future::join(all, async move { drop(turn) })
        };
        // As if a scan ran.
        scans(usage_entry.scan_lock.lock().await).await;
        assert_eq!(usage_entry.scans_started.load(Ordering::Acquire), 1);
        scans(usage_entry.scan_lock.lock().await).await;
        assert_eq!(usage_entry.scans_started.load(Ordering::Acquire), 2);
    }

    #[tokio::test]
    async fn what_is_set_aside_counts_until_a_walk_has_seen_what_became_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let usage_entry = Arc::new(TenantUsageEntry::default());
        let scan = || usage_entry.scan(dir.path().to_owned());
        let some = DiskUsage { bytes: 40, inodes: 1 };
        let sum_with = |expected: u64| {
            usage_entry.reserve(some, |sum| {
                assert_eq!((sum.bytes, sum.inodes), (expected, expected / 40));
                Ok(())
            })
        };
        scan().await.unwrap();
        let first = sum_with(40).unwrap();
        let second = sum_with(80).unwrap();
        scan().await.unwrap();
        drop(second);
        // The scan before may have missed it; and the first is still being stored.
        drop(sum_with(120).unwrap());
        scan().await.unwrap();
        drop(sum_with(80).unwrap());
        drop(first);
        scan().await.unwrap();
        drop(sum_with(40).unwrap());
        // A refused reservation is not kept.
        let full = usage_entry.reserve(some, |_| Err(RuntimeError::Draining));
        assert!(matches!(full, Err(RuntimeError::Draining)));
        scan().await.unwrap();
        drop(sum_with(40).unwrap());
    }

    #[tokio::test]
    async fn a_walk_that_began_before_something_was_stored_says_nothing_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let usage_entry = Arc::new(TenantUsageEntry::default());
        let turn = usage_entry.scan_lock.lock().await;
        let some = DiskUsage { bytes: 40, inodes: 1 };
        let stored = usage_entry.reserve(some, |_| Ok(())).unwrap();
        // As if a scan ran.
        let begun = usage_entry.start_scan();
        drop(stored);
        drop(turn);
        usage_entry.record_scan(begun, Default::default());
        let counted = usage_entry.reserve(some, |sum| {
            assert_eq!(sum.bytes, 80);
            Ok(())
        });
        drop(counted.unwrap());
        usage_entry.scan(dir.path().to_owned()).await.unwrap();
        drop(usage_entry.reserve(some, |sum| {
            assert_eq!(sum.bytes, 40);
            Ok(())
        }));
    }
}
