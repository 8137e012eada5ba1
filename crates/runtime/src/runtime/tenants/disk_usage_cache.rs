//! Measures the disk usage of tenants, in their data directories and in the journal. A scan runs on a thread that may
//! block, and only when a new value is needed. Each tenant has at most one scan at a time.
//!
//! A recent value is used at once, and refreshed in the background. The usage is measured again before a quota refuses
//! something. State: the last values, in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conjure_actors::tenants::{Quota, QuotaExceeded, TenantAccounts};
use conjure_base::{Clock as _, SystemClock, TenantId, lock};
use tokio_util::task::TaskTracker;

use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::disk_measure::{DiskUsage, MeasuredUsage, measure};
use crate::runtime::tenants::tenant_policies::TenantPolicies;
use crate::runtime::tenants::tenant_policy::TenantPolicy;
use crate::runtime::tenants::usage_entry::{ReservationGuard, TenantUsageEntry};
use crate::runtime::tenants::usage_roots::UsageRoots;

/// How old a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxAge {
    /// The value must be measured after the request.
    Now,
    /// The value may have been measured recently.
    Recent,
}

/// The disk usage of all tenants. Clones share it.
#[derive(Clone)]
pub(crate) struct DiskUsageCache {
    roots: Arc<UsageRoots>,
    policies: TenantPolicies,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Scans in the background. Each scan ends by itself, and no caller waits for it.
    scans: TaskTracker,
    entries: Mutex<BTreeMap<TenantId, Arc<TenantUsageEntry>>>,
}

impl DiskUsageCache {
    pub(crate) fn new(home: Arc<RuntimeDir>, policies: TenantPolicies) -> Self {
        Self { roots: Arc::new(UsageRoots::new(home)), policies, inner: Arc::default() }
    }

    /// Counts the journal as disk usage from now on. Its large bodies are in this directory.
    pub(crate) fn set_journal(&self, tenancy: TenantAccounts, bodies: PathBuf) {
        self.roots.set_journal(tenancy, bodies);
    }

    /// Fails if the tenant has reached its disk quota.
    pub(crate) async fn check(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        let policy = self.policies.policy(tenant);
        if !policy.limits_disk() {
            return Ok(());
        }
        let check_quota = |found| check_quota(tenant, &policy, found, DiskUsage::default());
        if check_quota(self.current(tenant, MaxAge::Recent).await?).is_ok() {
            return Ok(());
        }
        // Something may have been deleted since the last scan.
        check_quota(self.current(tenant, MaxAge::Now).await?)
    }

    /// Reserves space for the tenant if its quota allows it. `None` if the tenant has no disk quota.
    pub(super) async fn reserve(
        &self,
        tenant: &TenantId,
        more: DiskUsage,
    ) -> Result<Option<ReservationGuard>, RuntimeError> {
        let policy = self.policies.policy(tenant);
        if !policy.limits_disk() {
            return Ok(None);
        }
        let usage_entry = self.entry(tenant);
        let try_reserve =
            || usage_entry.reserve(more, |sum| check_quota(tenant, &policy, usage_entry.found(), sum));
        self.current_entry(&usage_entry, tenant, MaxAge::Recent).await?;
        if let Ok(guard) = try_reserve() {
            return Ok(Some(guard));
        }
        self.current_entry(&usage_entry, tenant, MaxAge::Now).await?;
        try_reserve().map(Some)
    }

    /// Reserves space for a copy of this directory if the tenant's quota allows it. `None` if the tenant has no disk
    /// quota.
    pub(crate) async fn reserve_copy(
        &self,
        tenant: &TenantId,
        dir: &Path,
    ) -> Result<Option<ReservationGuard>, RuntimeError> {
        if !self.policies.policy(tenant).limits_disk() {
            return Ok(None);
        }
        let dir = dir.to_owned();
        let found = run_blocking("measuring a workspace", move || Ok(measure(&dir))).await?;
        if let Some(reason) = found.incomplete_reason {
            return Err(RuntimeError::UsageUnknown { tenant: tenant.clone(), reason });
        }
        // A copy may be as large as the tenant's whole usage, so a recent value is not good enough.
        self.current(tenant, MaxAge::Now).await?;
        self.reserve(tenant, found.usage).await
    }

    fn entry(&self, tenant: &TenantId) -> Arc<TenantUsageEntry> {
        Arc::clone(lock(&self.inner.entries).entry(tenant.clone()).or_default())
    }

    /// The tenant's disk usage, as far as it can be measured.
    pub(crate) async fn measure(
        &self,
        tenant: &TenantId,
        max_age: MaxAge,
    ) -> Result<DiskUsage, RuntimeError> {
        Ok(self.current(tenant, max_age).await?.usage)
    }

    async fn current(&self, tenant: &TenantId, max_age: MaxAge) -> Result<MeasuredUsage, RuntimeError> {
        self.current_entry(&self.entry(tenant), tenant, max_age).await
    }

    async fn current_entry(
        &self,
        usage_entry: &Arc<TenantUsageEntry>,
        tenant: &TenantId,
        max_age: MaxAge,
    ) -> Result<MeasuredUsage, RuntimeError> {
        let last = *lock(&usage_entry.last);
        if let (MaxAge::Recent, Some(last)) = (max_age, last) {
            let is_over = |deadline| SystemClock.remaining(deadline).is_zero();
            if !is_over(last.usable_until) {
                if is_over(last.fresh_until) && usage_entry.scan_lock.try_lock().is_ok() {
                    let (usage_entry, roots, tenant) =
                        (Arc::clone(usage_entry), self.roots.roots(tenant), tenant.clone());
                    drop(self.inner.scans.spawn(async move {
                        if let Err(error) = usage_entry.scan(roots).await {
                            tracing::debug!(%tenant, %error, "the disk usage of a tenant was not measured");
                        }
                    }));
                }
                return Ok(last.found);
            }
        }
        usage_entry.scan(self.roots.roots(tenant)).await
    }

    /// Removes the values of a deleted tenant.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        lock(&self.inner.entries).remove(tenant);
    }
}

/// Checks that the tenant's quota allows this usage.
fn check_quota(
    tenant: &TenantId,
    policy: &TenantPolicy,
    MeasuredUsage { usage, incomplete_reason }: MeasuredUsage,
    more: DiskUsage,
) -> Result<(), RuntimeError> {
    let exceeded = |quota, limit, current| {
        Err(RuntimeError::Quota(QuotaExceeded::new(tenant.clone(), quota, limit, current)))
    };
    let (bytes, inodes) = (policy.disk_bytes, policy.inodes);
    let sum = usage.plus(more);
    match incomplete_reason {
        _ if usage.bytes >= bytes || sum.bytes > bytes => exceeded(Quota::DiskBytes, bytes, sum.bytes),
        _ if usage.inodes >= inodes || sum.inodes > inodes => exceeded(Quota::Inodes, inodes, sum.inodes),
        // Otherwise a tenant could exceed its quota by hiding files.
        Some(reason) => Err(RuntimeError::UsageUnknown { tenant: tenant.clone(), reason }),
        None => Ok(()),
    }
}
