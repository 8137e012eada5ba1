//! Reserves space on a tenant's disk for contents that are about to be stored: registered artifacts, and copies of
//! produced files. Space is reserved before a byte is written, so that concurrent operations cannot exceed the quota
//! together.
//!
//! State, in memory: the reservations, and those whose contents were stored since the last scan began. A content
//! counts as new, even if the store has it. A scan may see a part of a content that is reserved as well. Such a
//! refusal is too strict for a moment, but never too lax. Contents that other processes store are seen by the next
//! scan.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conjure_actors::artifacts::{SpaceReservation, StoreQuota};
use conjure_actors::session::SessionError;
use conjure_base::TenantId;
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::tenants::disk_usage::{DiskUsage, DiskUsageCache, TenantUsageEntry, lock};

/// The least space of a file on the disk.
const BLOCK: u64 = 4096;

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

/// When a reservation stops counting beside the last scan.
#[derive(Debug, Clone, Copy)]
enum ReleasedAt {
    /// It is being stored.
    WhenStored,
    /// It was stored or abandoned; every scan with a greater number has seen it.
    AfterScan(u64),
}

/// Reserved space, released when this is dropped.
#[derive(Debug)]
pub(crate) struct ReservationGuard {
    meter: Arc<TenantUsageEntry>,
    id: u64,
}

impl TenantUsageEntry {
    /// Reserves space if `check` accepts the sum of the last scan and all reservations.
    pub(super) fn reserve(
        self: &Arc<Self>,
        more: DiskUsage,
        judge: impl FnOnce(DiskUsage) -> Result<(), RuntimeError>,
    ) -> Result<ReservationGuard, RuntimeError> {
        let mut reservations = lock(&self.reservations.0);
        // Read under the lock: what this scan has seen is not counted by any later reservation.
        let scan = self.last_scan();
        let is_unseen = |reservation: &Reservation| match reservation.until {
            ReleasedAt::WhenStored => true,
            ReleasedAt::AfterScan(begun) => scan <= begun,
        };
        reservations.by_id.retain(|_, reservation| is_unseen(reservation));
        let sum = reservations.by_id.values().fold(more, |sum, reservation| sum.plus(reservation.usage));
        judge(sum)?;
        reservations.last += 1;
        let id = reservations.last;
        reservations.by_id.insert(id, Reservation { usage: more, until: ReleasedAt::WhenStored });
        Ok(ReservationGuard { meter: Arc::clone(self), id })
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        let mut reservations = lock(&self.meter.reservations.0);
        let begun = self.meter.scans_begun();
        if let Some(reservation) = reservations.by_id.get_mut(&self.id) {
            reservation.until = ReleasedAt::AfterScan(begun);
        }
    }
}

/// The quota of a tenant's store.
#[derive(Clone)]
pub(crate) struct TenantStoreQuota {
    meters: DiskUsageCache,
    tenant: TenantId,
}

impl TenantStoreQuota {
    pub(crate) const fn new(meters: DiskUsageCache, tenant: TenantId) -> Self {
        Self { meters, tenant }
    }
}

impl StoreQuota for TenantStoreQuota {
    fn reserve(&self, bytes: u64) -> BoxFuture<'_, Result<SpaceReservation, SessionError>> {
        Box::pin(async move {
            let more = DiskUsage { bytes: bytes.div_ceil(BLOCK).saturating_mul(BLOCK), inodes: 1 };
            match self.meters.reserve(&self.tenant, more).await {
                Ok(Some(guard)) => Ok(SpaceReservation::with_guard(guard)),
                Ok(None) => Ok(SpaceReservation::unlimited()),
                Err(RuntimeError::Quota(exceeded)) => Err(exceeded.into()),
                Err(RuntimeError::UsageUnknown { tenant, reason }) => {
                    Err(SessionError::UsageUnknown { tenant, reason })
                }
                Err(error) => {
                    tracing::warn!(tenant = %self.tenant, %error, "the disk usage of a tenant was not measured");
                    let reason = "the scan was interrupted";
                    Err(SessionError::UsageUnknown { tenant: self.tenant.clone(), reason })
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_set_aside_counts_until_a_walk_has_seen_what_became_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Arc::new(TenantUsageEntry::default());
        let scan = || meter.scan(folder.path().to_owned());
        let some = DiskUsage { bytes: 40, inodes: 1 };
        let sum_with = |expected: u64| {
            meter.reserve(some, |sum| {
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
        let full = meter.reserve(some, |_| Err(RuntimeError::Draining));
        assert!(matches!(full, Err(RuntimeError::Draining)));
        scan().await.unwrap();
        drop(sum_with(40).unwrap());
    }

    #[tokio::test]
    async fn a_walk_that_began_before_something_was_stored_says_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Arc::new(TenantUsageEntry::default());
        let turn = meter.scan_lock.lock().await;
        let some = DiskUsage { bytes: 40, inodes: 1 };
        let stored = meter.reserve(some, |_| Ok(())).unwrap();
        // As if a scan ran.
        let begun = meter.start_scan();
        drop(stored);
        drop(turn);
        meter.record_scan(begun, Default::default());
        let counted = meter.reserve(some, |sum| {
            assert_eq!(sum.bytes, 80);
            Ok(())
        });
        drop(counted.unwrap());
        meter.scan(folder.path().to_owned()).await.unwrap();
        drop(meter.reserve(some, |sum| {
            assert_eq!(sum.bytes, 40);
            Ok(())
        }));
    }
}
