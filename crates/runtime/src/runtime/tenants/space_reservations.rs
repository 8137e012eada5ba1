//! The quota of a tenant's store, which reserves space for registered artifacts and copies of produced files.

use conjure_actors::artifacts::{SpaceReservation, StoreQuota};
use conjure_actors::session::SessionError;
use conjure_base::TenantId;
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::tenants::disk_measure::DiskUsage;
use crate::runtime::tenants::disk_usage::DiskUsageCache;

/// The least space of a file on the disk.
const BLOCK: u64 = 4096;

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
