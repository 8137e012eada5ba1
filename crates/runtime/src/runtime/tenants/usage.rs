//! The policy and the usage of a tenant.

use conjure_actors::admission::AdmissionLoad;
use conjure_actors::tenants::{Spent, TenantStatus};
use conjure_base::TenantId;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::tenants::disk_measure::DiskUsage;
use crate::runtime::tenants::disk_usage_cache::MaxAge;
use crate::runtime::tenants::tenant_policy::TenantPolicy;

/// A tenant's policy and usage.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tenant {
    /// The policy in force: the tenant's own, or the default.
    pub policy: TenantPolicy,
    /// The usage.
    pub usage: TenantUsage,
}

/// The usage of a tenant. Live sessions, sandboxes and model calls are counted in this process. Recorded sessions,
/// spending and disk usage are counted over all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantUsage {
    /// Live sessions.
    pub live_sessions: u64,
    /// Recorded sessions.
    pub recorded_sessions: u64,
    /// Live and waiting sandboxes.
    pub sandboxes: AdmissionLoad,
    /// Running and waiting model calls.
    pub model_calls: AdmissionLoad,
    /// The disk usage: the data directory and the journal.
    pub disk: DiskUsage,
    /// The spending: tokens and money, in total, today and this month.
    pub spent: Vec<Spent>,
    /// The tokens reserved for running model calls.
    pub reserved_tokens: u64,
    /// The cost reserved for running model calls, in millionths of a dollar.
    pub reserved_cost_micros: u64,
}

impl Runtime {
    /// The policy and the usage of a tenant. A tenant that never opened a session has no usage.
    ///
    /// # Errors
    ///
    /// If the journal or the tenant's directory cannot be read.
    pub async fn tenant(&self, tenant: &TenantId) -> Result<Tenant, RuntimeError> {
        let policies = self.inner.factory.sandboxes.policies();
        let TenantStatus {
            live_sessions,
            recorded_sessions,
            spent,
            reserved_tokens,
            reserved_cost_micros,
            ..
        } = self.inner.tree.accounts().status(tenant).await?;
        let disk = self.inner.factory.sandboxes.disk_usage().measure(tenant, MaxAge::Now).await?;
        let [sandboxes, model_calls] = policies.loads(tenant);
        let usage = TenantUsage {
            live_sessions,
            recorded_sessions,
            sandboxes,
            model_calls,
            disk,
            spent,
            reserved_tokens,
            reserved_cost_micros,
        };
        Ok(Tenant { policy: (*policies.policy(tenant)).clone(), usage })
    }

    /// Sets the policy of a tenant. If it allows less than before, what the tenant has stays, but it gets no more.
    ///
    /// - Secrets are redacted at once, also for current subscribers.
    /// - Models, variables, the network of sandboxes and the isolation requirements take effect at a session's next
    ///   start.
    ///
    /// The policy is kept in memory. The embedder sets it again at each start, by
    /// [`RuntimeOptions::tenant`](crate::RuntimeOptions::tenant).
    ///
    /// # Errors
    ///
    /// If the network's host list is invalid, or if the client for the tenant's key cannot be created. The old policy
    /// then stays in force.
    pub fn set_tenant(&self, tenant: &TenantId, policy: TenantPolicy) -> Result<(), RuntimeError> {
        self.set_policy(tenant, Some(policy))
    }

    /// Resets the tenant to the default policy.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::set_tenant`]. No case is known in which it fails.
    pub fn reset_tenant(&self, tenant: &TenantId) -> Result<(), RuntimeError> {
        self.set_policy(tenant, None)
    }

    fn set_policy(&self, tenant: &TenantId, policy: Option<TenantPolicy>) -> Result<(), RuntimeError> {
        let has_policy = policy.is_some();
        let factory = &self.inner.factory;
        let policy = factory.sandboxes.policies().set(tenant, policy, &factory.config)?;
        self.inner.tree.add_secrets_all(tenant, &policy.redactor());
        self.inner.tree.set_limits(tenant, has_policy.then(|| policy.terms().clone()));
        Ok(())
    }
}
