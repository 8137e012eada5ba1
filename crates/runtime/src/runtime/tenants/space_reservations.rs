//! The quota of a tenant's store, which reserves space for registered artifacts and copies of produced files.

use conjure_actors::artifacts::{SpaceReservation, StoreQuota};
use conjure_actors::session::SessionError;
use conjure_base::TenantId;
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::tenants::disk_measure::DiskUsage;
use crate::runtime::tenants::disk_usage_cache::DiskUsageCache;

/// The least space of a file on the disk.
const BLOCK: u64 = 4096;

/// The quota of a tenant's store.
#[derive(Clone)]
pub(crate) struct TenantStoreQuota {
    disk_usage: DiskUsageCache,
    tenant: TenantId,
}

impl TenantStoreQuota {
    pub(crate) const fn new(disk_usage: DiskUsageCache, tenant: TenantId) -> Self {
        Self { disk_usage, tenant }
    }
}

impl StoreQuota for TenantStoreQuota {
    fn reserve(&self, bytes: u64) -> BoxFuture<'_, Result<SpaceReservation, SessionError>> {
        Box::pin(async move {
            let more = DiskUsage { bytes: bytes.div_ceil(BLOCK).saturating_mul(BLOCK), inodes: 1 };
            match self.disk_usage.reserve(&self.tenant, more).await {
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
