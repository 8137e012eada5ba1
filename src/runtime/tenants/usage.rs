//! What a tenant has.

use conjure_actors::admission::GateLoad;
use conjure_actors::tenants::{Spent, Standing};
use conjure_base::TenantId;

use super::super::error::RuntimeError;
use super::super::handle::Runtime;
use super::meter::{DiskUsage, Freshness};
use super::policy::TenantPolicy;

/// A tenant: what it may have, and what it has.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tenant {
    /// What it may have: its own policy, or that of every tenant.
    pub policy: TenantPolicy,
    /// What it has.
    pub usage: TenantUsage,
}

/// What a tenant has. What is live is counted in this process; what is recorded, spent and on the disk, of all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantUsage {
    /// Sessions that are live.
    pub live_sessions: u64,
    /// Sessions that are recorded.
    pub recorded_sessions: u64,
    /// Sandboxes: those that are live, and those that are waited for.
    pub sandboxes: GateLoad,
    /// Model calls: those that are under way, and those that wait.
    pub model_calls: GateLoad,
    /// What it takes of the disk: its data folder, and what it recorded.
    pub disk: DiskUsage,
    /// Bytes that are kept of what its URLs led to, so that nobody is asked again, each URL's by themselves: those of this process.
    /// Where it may have less by now, they are more than that until it uses a URL.
    pub artifact_cache_bytes: u64,
    /// What it has spent: tokens and money, in all, this day and this month.
    pub spent: Vec<Spent>,
    /// How many tokens the model calls that are under way may come to.
    pub reserved_tokens: u64,
    /// How many millionths of a dollar they may come to.
    pub reserved_cost_micros: u64,
}

impl Runtime {
    /// What a tenant may have, and what it has. One that never opened a session has nothing, and may have what its policy says.
    ///
    /// # Errors
    /// When the journal or the tenant's folder cannot be read.
    pub async fn tenant(&self, tenant: &TenantId) -> Result<Tenant, RuntimeError> {
        let policies = self.inner.outfitter.policies();
        let Standing {
            live_sessions, recorded_sessions, spent, reserved_tokens, reserved_cost_micros, ..
        } = self.inner.tree.tenancy().standing(tenant).await?;
        let disk = self.inner.outfitter.measure(tenant, Freshness::Now).await?;
        let [sandboxes, model_calls] = policies.loads(tenant);
        let usage = TenantUsage {
            live_sessions,
            recorded_sessions,
            sandboxes,
            model_calls,
            disk,
            artifact_cache_bytes: self.inner.outfitter.artifact_cache_bytes(tenant),
            spent,
            reserved_tokens,
            reserved_cost_micros,
        };
        Ok(Tenant { policy: (*policies.of(tenant)).clone(), usage })
    }

    /// What a tenant may have, from now on. Its sessions go on where more is allowed than before; where less is, what they have
    /// stays, and they get no more. Secrets are concealed at once, also from whoever listens already; models, variables, the
    /// network of sandboxes and the floor hold from a session's next start on.
    ///
    /// It is kept in memory: a host says it again after a start, by
    /// [`RuntimeOptions::tenant`](crate::RuntimeOptions::tenant).
    ///
    /// # Errors
    /// When the network's list cannot be read, or no client can be made for the tenant's key. What was in force stays.
    pub fn set_tenant(&self, tenant: &TenantId, policy: TenantPolicy) -> Result<(), RuntimeError> {
        self.put_in_force(tenant, Some(policy))
    }

    /// The tenant may have what every tenant may, from now on.
    ///
    /// # Errors
    /// None that are known; as for [`Runtime::set_tenant`].
    pub fn reset_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        self.put_in_force(tenant, None)
    }

    fn put_in_force(&self, tenant: &TenantId, policy: Option<TenantPolicy>) -> Result<(), RuntimeError> {
        let is_own = policy.is_some();
        let outfitter = &self.inner.outfitter;
        let policy = outfitter.policies().set(tenant, policy, outfitter.config())?;
        self.inner.tree.conceal_all(tenant, &policy.redactor());
        self.inner.tree.set_terms(tenant, is_own.then(|| policy.terms().clone()));
        Ok(())
    }
}
