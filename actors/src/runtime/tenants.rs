//! The tenants' supervisors: one dynamic supervisor for each, in a few partitions.
//!
//! A tenant's supervisor is started for a session of the tenant, and stays while a session lives, or somebody has one; then it is ended
//! by a chore ([`Idle`]), as an idle tenant should cost nothing. Its sessions are temporary children: one that gives up is forgotten
//! there, and costs its siblings nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use conjure_base::{Deadline, TenantId};
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use super::error::RuntimeError;
use super::locks::TenantLocks;
use crate::janitor::Chore;
use crate::supervision::{
    ChildId, Counts, Domain, Dynamic, Failure, GivenUp, Partitions, RequestError, StartError, Supervisor,
    SupervisorSpec,
};
use crate::tenants::Tenancy;

/// The way to the tenants' supervisors.
#[derive(Debug)]
pub(crate) struct Tenants {
    partitions: Partitions,
    capacity: usize,
    /// Whoever starts something below one of them shares it: while somebody does, it is not idle.
    known: DashMap<TenantId, Arc<Supervisor>>,
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

    pub(crate) fn known(&self, tenant: &TenantId) -> Option<Arc<Supervisor>> {
        self.known.get(tenant).map(|known| Arc::clone(&known))
    }

    /// The tenant's supervisor.
    pub(crate) async fn supervisor(
        &self,
        tenant: &TenantId,
        deadline: Deadline,
    ) -> Result<Arc<Supervisor>, RuntimeError> {
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
        let supervisor = Arc::new(supervisor);
        self.known.insert(tenant.clone(), Arc::clone(&supervisor));
        Ok(supervisor)
    }

    /// Ends the supervisors that nobody uses; those that somebody may want just now, too: they are started anew. How many.
    async fn end_idle(&self, deadline: Deadline) -> Result<u64, RuntimeError> {
        let idle = self.known.iter().filter(|known| is_idle(known.key(), known.value()));
        let idle: Vec<TenantId> = idle.map(|known| known.key().clone()).collect();
        let mut ended = 0;
        for tenant in idle {
            // Whoever does not find it any more has it started behind this, and not before.
            let _one = self.lock(&tenant, deadline).await?;
            if self.known.remove_if(&tenant, is_idle).is_some() {
                let id = ChildId::new(tenant.as_str())?;
                match self.partitions.terminate_child(&id, deadline).await {
                    Ok(()) | Err(RequestError::NotFound(_)) => ended += 1,
                    // It runs on, and is found by whoever wants one started.
                    Err(error) => return Err(RuntimeError::Tenant(StartError::Request(error))),
                }
            }
        }
        Ok(ended)
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

/// Whether only the map has it: others have got it while its entry was locked, or not at all.
fn is_idle(_: &TenantId, supervisor: &Arc<Supervisor>) -> bool {
    Arc::strong_count(supervisor) == 1 && supervisor.count().all == 0
}

/// Ends the supervisors of tenants of which no session lives here, and nobody has one; has charged what they owe.
pub(crate) struct Idle(Weak<Tenants>, Tenancy);

impl Idle {
    pub(crate) fn of(tenants: &Arc<Tenants>, tenancy: &Tenancy) -> Arc<dyn Chore> {
        Arc::new(Self(Arc::downgrade(tenants), tenancy.clone()))
    }
}

impl Chore for Idle {
    fn name(&self) -> &'static str {
        "idle-tenants"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How many supervisors were ended.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            self.1.settle();
            let Some(tenants) = self.0.upgrade() else { return Ok(0) };
            Ok(tenants.end_idle(deadline).await?)
        })
    }
}
