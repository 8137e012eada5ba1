//! The tenants' supervisors: one dynamic supervisor for each, in a few partitions.
//!
//! A tenant's supervisor is started with the tenant's first session and stays. Its sessions are temporary children: one that
//! gives up is forgotten there, and costs its siblings nothing.

use std::sync::Arc;

use conjure_base::{Deadline, TenantId};
use dashmap::DashMap;
use tokio::sync::OwnedMutexGuard;

use super::error::RuntimeError;
use super::locks::TenantLocks;
use crate::supervision::{
    ChildId, Counts, Domain, Dynamic, GivenUp, Partitions, RequestError, StartError, Supervisor,
    SupervisorSpec,
};

/// The way to the tenants' supervisors.
#[derive(Debug)]
pub(crate) struct Tenants {
    partitions: Partitions,
    capacity: usize,
    known: DashMap<TenantId, Supervisor>,
    /// One caller at a time has a tenant's supervisor started or ended.
    changing: TenantLocks,
}

impl Tenants {
    pub(crate) fn new(partitions: Partitions, capacity: usize) -> Arc<Self> {
        Arc::new(Self { partitions, capacity, known: DashMap::new(), changing: TenantLocks::default() })
    }

    /// What a partition is: its tenants fail each for itself.
    pub(crate) fn partition(id: ChildId) -> SupervisorSpec<Dynamic> {
        SupervisorSpec::dynamic(id).domain(Domain::EachChild)
    }

    pub(crate) fn known(&self, tenant: &TenantId) -> Option<Supervisor> {
        self.known.get(tenant).map(|known| known.clone())
    }

    /// The tenant's supervisor.
    pub(crate) async fn supervisor(
        &self,
        tenant: &TenantId,
        deadline: Deadline,
    ) -> Result<Supervisor, RuntimeError> {
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let _one = self.lock(tenant, deadline).await?;
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let id = ChildId::new(tenant.as_str())?;
        let spec = SupervisorSpec::dynamic(id)
            .capacity(self.capacity)
            .domain(Domain::EachChild)
            // Whoever wants such a session again has it started anew.
            .given_up(GivenUp::Forgotten)
            .tenant(tenant.clone());
        let (spec, supervisor) = spec.build();
        let supervisor = match self.partitions.start_child(spec, deadline).await {
            Ok(_) => supervisor,
            // It was started for somebody who stopped waiting.
            Err(StartError::AlreadyStarted(child)) => child.supervisor().unwrap_or(supervisor),
            Err(error) => return Err(RuntimeError::Tenant(error)),
        };
        self.known.insert(tenant.clone(), supervisor.clone());
        Ok(supervisor)
    }

    /// Ends the tenant's supervisor with all its sessions, in order, and forgets it.
    pub(crate) async fn end(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), RuntimeError> {
        // Nobody has it started meanwhile.
        let _one = self.lock(tenant, deadline).await?;
        let id = ChildId::new(tenant.as_str())?;
        match self.partitions.terminate_child(&id, deadline).await {
            Ok(()) | Err(RequestError::NotFound(_)) => {}
            Err(error) => return Err(RuntimeError::Tenant(StartError::Request(error))),
        }
        self.known.remove(tenant);
        Ok(())
    }

    async fn lock(&self, tenant: &TenantId, deadline: Deadline) -> Result<OwnedMutexGuard<()>, RuntimeError> {
        if let Some(locked) = self.changing.lock(tenant, deadline).await {
            return Ok(locked);
        }
        let late = RequestError::DeadlinePassed(ChildId::new(tenant.as_str())?);
        Err(RuntimeError::Tenant(StartError::Request(late)))
    }

    /// The sessions of all tenants.
    pub(crate) fn sessions(&self) -> Counts {
        self.known.iter().map(|known| known.count()).fold(Counts::default(), Counts::plus)
    }

    pub(crate) fn count(&self) -> usize {
        self.partitions.count().all
    }
}
