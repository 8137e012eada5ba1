//! The tenants' supervisors: one dynamic supervisor for each, in a few partitions.
//!
//! A tenant's supervisor is started for a session of the tenant, and stays while a session lives, or somebody has one; then it is ended
//! by a chore ([`StopIdleTenants`]), as an idle tenant should cost nothing. Its sessions are temporary children: one that gives up is forgotten
//! there, and costs its siblings nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use conjure_base::{Deadline, TenantId};
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use super::error::TreeError;
use super::tenant_locks::TenantLocks;
use crate::maintenance::MaintenanceTask;
use crate::supervision::{
    ChildCounts, ChildId, Dynamic, Failure, IntensityScope, OnLimit, Partitions, RequestError, StartError,
    Supervisor, SupervisorSpec,
};
use crate::tenants::TenantAccounts;

/// The way to the tenants' supervisors.
#[derive(Debug)]
pub(crate) struct TenantSupervisors {
    partitions: Partitions,
    capacity: usize,
    /// Whoever starts something below one of them shares it: while somebody does, it is not idle.
    supervisors: DashMap<TenantId, Arc<Supervisor>>,
    /// One caller at a time has a tenant's supervisor started or ended.
    locks: TenantLocks,
}

impl TenantSupervisors {
    pub(crate) fn new(partitions: Partitions, capacity: usize) -> Arc<Self> {
        Arc::new(Self { partitions, capacity, supervisors: DashMap::new(), locks: TenantLocks::default() })
    }

    /// What a partition is: its tenants fail each for itself.
    pub(crate) fn partition(id: ChildId) -> SupervisorSpec<Dynamic> {
        SupervisorSpec::dynamic(id).intensity_scope(IntensityScope::PerChild)
    }

    pub(crate) fn get(&self, tenant: &TenantId) -> Option<Arc<Supervisor>> {
        self.supervisors.get(tenant).map(|known| Arc::clone(&known))
    }

    /// The tenant's supervisor.
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
            .capacity(self.capacity)
            .intensity_scope(IntensityScope::PerChild)
            // Whoever wants such a session again has it started anew.
            .on_limit(OnLimit::Remove)
            .tenant(tenant.clone());
        let (spec, supervisor) = spec.build();
        let supervisor = match self.partitions.start_child(spec, deadline).await {
            Ok(_) => supervisor,
            // It was started for somebody who stopped waiting.
            Err(StartError::AlreadyStarted(child)) => child.supervisor().unwrap_or(supervisor),
            Err(error) => return Err(TreeError::Tenant(error)),
        };
        let supervisor = Arc::new(supervisor);
        self.supervisors.insert(tenant.clone(), Arc::clone(&supervisor));
        Ok(supervisor)
    }

    /// Ends the supervisors that nobody uses; those that somebody may want just now, too: they are started anew. How many.
    async fn end_idle(&self, deadline: Deadline) -> Result<u64, TreeError> {
        let idle = self.supervisors.iter().filter(|known| is_idle(known.key(), known.value()));
        let idle: Vec<TenantId> = idle.map(|known| known.key().clone()).collect();
        let mut ended = 0;
        for tenant in idle {
            // Whoever does not find it any more has it started behind this, and not before.
            let _one = self.lock(&tenant, deadline).await?;
            if self.supervisors.remove_if(&tenant, is_idle).is_some() {
                let id = ChildId::new(tenant.as_str())?;
                match self.partitions.terminate_child(&id, deadline).await {
                    Ok(()) | Err(RequestError::NotFound(_)) => ended += 1,
                    // It runs on, and is found by whoever wants one started.
                    Err(error) => return Err(TreeError::Tenant(StartError::Request(error))),
                }
            }
        }
        Ok(ended)
    }

    /// Ends the tenant's supervisor with all its sessions, in order, and forgets it.
    pub(crate) async fn end(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), TreeError> {
        // Nobody has it started meanwhile.
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
        if let Some(locked) = self.locks.lock(tenant, deadline).await {
            return Ok(locked);
        }
        let late = RequestError::DeadlinePassed(ChildId::new(tenant.as_str())?);
        Err(TreeError::Tenant(StartError::Request(late)))
    }

    /// The sessions of all tenants.
    pub(crate) fn sessions(&self) -> ChildCounts {
        self.supervisors.iter().map(|known| known.count()).fold(ChildCounts::default(), ChildCounts::plus)
    }

    pub(crate) fn count(&self) -> usize {
        self.partitions.count().all
    }
}

/// Whether only the map has it: others have got it while its entry was locked, or not at all.
fn is_idle(_: &TenantId, supervisor: &Arc<Supervisor>) -> bool {
    Arc::strong_count(supervisor) == 1 && supervisor.count().all == 0
}

/// Ends the supervisors of tenants of which no session lives here, and nobody has one; has charged what they owe.
pub(crate) struct StopIdleTenants(Weak<TenantSupervisors>, TenantAccounts);

impl StopIdleTenants {
    pub(crate) fn task(
        tenants: &Arc<TenantSupervisors>,
        accounts: &TenantAccounts,
    ) -> Arc<dyn MaintenanceTask> {
        Arc::new(Self(Arc::downgrade(tenants), accounts.clone()))
    }
}

impl MaintenanceTask for StopIdleTenants {
    fn name(&self) -> &'static str {
        "idle-tenants"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How many supervisors were ended.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            self.1.flush_pending();
            let Some(tenants) = self.0.upgrade() else { return Ok(0) };
            Ok(tenants.end_idle(deadline).await?)
        })
    }
}
