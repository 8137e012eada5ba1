//! The tenants' supervisors: one dynamic supervisor for each tenant, below a few partitions.
//!
//! A tenant's supervisor is started for its first session, and stays while a session is live or has a handle. Then a
//! maintenance task ([`StopIdleTenants`]) stops it, because an idle tenant should cost nothing. A session that exceeds
//! its restart limit is removed from its supervisor, and does not affect the other sessions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use conjure_base::{Deadline, KeyedLocks, TenantId};
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use super::error::TreeError;
use crate::maintenance::MaintenanceTask;
use crate::supervision::{
    ChildId, Dynamic, Failure, IntensityScope, OnLimit, Partitions, RequestError, StartError, Supervisor,
    SupervisorSpec,
};
use crate::tenants::TenantAccounts;

/// Starts, finds and stops the supervisors of tenants.
#[derive(Debug)]
pub(crate) struct TenantSupervisors {
    partitions: Partitions,
    /// The supervisors. Callers and session entries hold clones of the `Arc`, so a supervisor in use is not idle.
    supervisors: DashMap<TenantId, Arc<Supervisor>>,
    /// The caller that starts or stops a tenant's supervisor holds the tenant's lock.
    locks: KeyedLocks<TenantId>,
}

impl TenantSupervisors {
    pub(crate) fn new(partitions: Partitions) -> Arc<Self> {
        Arc::new(Self { partitions, supervisors: DashMap::new(), locks: KeyedLocks::default() })
    }

    /// The spec of a partition. Its tenants do not affect each other.
    pub(crate) fn partition(id: ChildId) -> SupervisorSpec<Dynamic> {
        SupervisorSpec::dynamic(id).intensity_scope(IntensityScope::PerChild)
    }

    pub(crate) fn get(&self, tenant: &TenantId) -> Option<Arc<Supervisor>> {
        self.supervisors.get(tenant).map(|known| Arc::clone(&known))
    }

    /// The tenant's supervisor, started if missing.
    pub(crate) async fn supervisor(
        &self,
        tenant: &TenantId,
        deadline: Deadline,
    ) -> Result<Arc<Supervisor>, TreeError> {
        if let Some(known) = self.get(tenant) {
            return Ok(known);
        }
        let _one = self.lock(tenant, deadline).await?;
        if let Some(known) = self.get(tenant) {
            return Ok(known);
        }
        let id = ChildId::new(tenant.as_str())?;
        let spec = SupervisorSpec::dynamic(id)
            .intensity_scope(IntensityScope::PerChild)
            // The next use of a removed session starts it again.
            .on_limit(OnLimit::Remove)
            .tenant(tenant.clone());
        let (spec, supervisor) = spec.build();
        let supervisor = match self.partitions.start_child(spec, deadline).await {
            Ok(_) => supervisor,
            // An earlier caller started it, and stopped waiting.
            Err(StartError::AlreadyStarted(child)) => child.supervisor().unwrap_or(supervisor),
            Err(error) => return Err(TreeError::Tenant(error)),
        };
        let supervisor = Arc::new(supervisor);
        self.supervisors.insert(tenant.clone(), Arc::clone(&supervisor));
        Ok(supervisor)
    }

    /// Stops the idle supervisors, and returns how many. The next use of a tenant starts its supervisor again.
    async fn stop_idle(&self, deadline: Deadline) -> Result<u64, TreeError> {
        let idle = self.supervisors.iter().filter(|known| is_idle(known.key(), known.value()));
        let idle: Vec<TenantId> = idle.map(|known| known.key().clone()).collect();
        let mut stopped = 0;
        for tenant in idle {
            // Because of this lock, a caller that does not find the supervisor any more starts it only after the stop.
            let _one = self.lock(&tenant, deadline).await?;
            if self.supervisors.remove_if(&tenant, is_idle).is_some() {
                let id = ChildId::new(tenant.as_str())?;
                match self.partitions.terminate_child(&id, deadline).await {
                    Ok(()) | Err(RequestError::NotFound(_)) => stopped += 1,
                    // It continues to run, and the next start finds it.
                    Err(error) => return Err(TreeError::Tenant(StartError::Request(error))),
                }
            }
        }
        Ok(stopped)
    }

    /// Stops the tenant's supervisor with all its sessions in order, and forgets it.
    pub(crate) async fn end(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), TreeError> {
        // The lock keeps others from starting it meanwhile.
        let _one = self.lock(tenant, deadline).await?;
        let id = ChildId::new(tenant.as_str())?;
        match self.partitions.terminate_child(&id, deadline).await {
            Ok(()) | Err(RequestError::NotFound(_)) => {}
            Err(error) => return Err(TreeError::Tenant(StartError::Request(error))),
        }
        self.supervisors.remove(tenant);
        Ok(())
    }

    async fn lock(&self, tenant: &TenantId, deadline: Deadline) -> Result<OwnedMutexGuard<()>, TreeError> {
        if let Some(locked) = self.locks.lock_until(tenant.clone(), deadline).await {
            return Ok(locked);
        }
        let late = RequestError::DeadlinePassed(ChildId::new(tenant.as_str())?);
        Err(TreeError::Tenant(StartError::Request(late)))
    }

    /// The number of live sessions of all tenants.
    pub(crate) fn sessions(&self) -> usize {
        self.supervisors.iter().map(|known| known.count().all).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.partitions.count()
    }
}

/// Whether only the map holds the supervisor, and it has no sessions. `remove_if` locks the map's entry, so no caller can
/// get the supervisor between this check and its removal.
fn is_idle(_: &TenantId, supervisor: &Arc<Supervisor>) -> bool {
    Arc::strong_count(supervisor) == 1 && supervisor.count().all == 0
}

/// Stops the supervisors of tenants without a live session and without handles, and submits their pending charges.
pub(crate) struct StopIdleTenants {
    tenants: Weak<TenantSupervisors>,
    accounts: TenantAccounts,
}

impl StopIdleTenants {
    pub(crate) fn task(
        tenants: &Arc<TenantSupervisors>,
        accounts: &TenantAccounts,
    ) -> Arc<dyn MaintenanceTask> {
        Arc::new(Self { tenants: Arc::downgrade(tenants), accounts: accounts.clone() })
    }
}

impl MaintenanceTask for StopIdleTenants {
    fn name(&self) -> &'static str {
        "idle-tenants"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Returns how many supervisors were stopped.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            self.accounts.flush_pending();
            let Some(tenants) = self.tenants.upgrade() else { return Ok(0) };
            Ok(tenants.stop_idle(deadline).await?)
        })
    }
}
