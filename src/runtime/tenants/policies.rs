//! The policies in force, and the gates that follow them.
//!
//! State: in memory. A host says them anew at each start.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_actors::admission::{Gate, GateLoad, Share};
use conjure_base::{Digest, TenantId};
use conjure_sandbox::NetworkPolicy;

use super::super::error::RuntimeError;
use super::super::models::Clients;
use super::policy::TenantPolicy;
use crate::config::Config;

/// What each tenant may have. Clones are the same.
#[derive(Clone)]
pub(crate) struct Policies {
    inner: Arc<Inner>,
}

struct Inner {
    sandboxes: Gate,
    model_calls: Gate,
    /// What the gates gave all tenants at first.
    shares: [Share; 2],
    clients: Clients,
    /// Which key the host has, where it has one: its client stays.
    key: Option<Digest>,
    state: Mutex<State>,
}

struct State {
    standard: Arc<TenantPolicy>,
    own: BTreeMap<TenantId, Arc<TenantPolicy>>,
}

impl Policies {
    /// With these gates in front of sandboxes and model calls; every tenant may have what `standard` says, but for those that
    /// have policies of their own.
    pub(crate) fn new(
        sandboxes: Gate,
        model_calls: Gate,
        standard: TenantPolicy,
        own: BTreeMap<TenantId, TenantPolicy>,
        (clients, key): (Clients, Option<Digest>),
        config: &Config,
    ) -> Result<Self, RuntimeError> {
        let shares = [sandboxes.standard(), model_calls.standard()];
        let standard = made(standard, &clients, config)?;
        sandboxes.set_standard(standard.share_of_sandboxes(shares[0]));
        model_calls.set_standard(standard.share_of_model_calls(shares[1]));
        let state = Mutex::new(State { standard: Arc::new(standard), own: BTreeMap::new() });
        let policies =
            Self { inner: Arc::new(Inner { sandboxes, model_calls, shares, clients, key, state }) };
        for (tenant, policy) in own {
            policies.set(&tenant, Some(policy), config)?;
        }
        Ok(policies)
    }

    /// What the tenant may have, from now on; `None`: what every tenant may.
    pub(crate) fn set(
        &self,
        tenant: &TenantId,
        policy: Option<TenantPolicy>,
        config: &Config,
    ) -> Result<Arc<TenantPolicy>, RuntimeError> {
        let inner = &self.inner;
        let policy = policy.map(|policy| made(policy, &inner.clients, config)).transpose()?;
        let mut state = inner.lock();
        let share = |of: fn(&TenantPolicy, Share) -> Share, standard| {
            policy.as_ref().map(|policy| of(policy, standard))
        };
        inner.sandboxes.set_share(tenant, share(TenantPolicy::share_of_sandboxes, inner.shares[0]));
        inner.model_calls.set_share(tenant, share(TenantPolicy::share_of_model_calls, inner.shares[1]));
        let policy = match policy {
            Some(policy) => {
                let policy = Arc::new(policy);
                state.own.insert(tenant.clone(), Arc::clone(&policy));
                policy
            }
            None => {
                state.own.remove(tenant);
                Arc::clone(&state.standard)
            }
        };
        // Keys that nobody has any more need no clients.
        let used =
            state.own.values().chain([&state.standard]).filter_map(|policy| policy.models.key_digest());
        let used = used.chain(inner.key);
        inner.clients.keep(&used.collect());
        Ok(policy)
    }

    /// What the tenant may have.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<TenantPolicy> {
        let state = self.inner.lock();
        Arc::clone(state.own.get(tenant).unwrap_or(&state.standard))
    }

    /// What a tenant may have of which nothing was said.
    pub(crate) fn standard(&self) -> Arc<TenantPolicy> {
        Arc::clone(&self.inner.lock().standard)
    }

    /// Those that have policies of their own.
    pub(crate) fn own(&self) -> Vec<TenantId> {
        self.inner.lock().own.keys().cloned().collect()
    }

    /// What every sandbox passes.
    pub(crate) fn sandboxes(&self) -> &Gate {
        &self.inner.sandboxes
    }

    /// What every model call passes.
    pub(crate) fn model_calls(&self) -> &Gate {
        &self.inner.model_calls
    }

    /// What the tenant has of sandboxes and of model calls.
    pub(crate) fn loads(&self, tenant: &TenantId) -> [GateLoad; 2] {
        [self.inner.sandboxes.load_of(tenant), self.inner.model_calls.load_of(tenant)]
    }
}

/// The policy, when it can be kept.
fn made(mut policy: TenantPolicy, clients: &Clients, config: &Config) -> Result<TenantPolicy, RuntimeError> {
    let refused = |error: conjure_sandbox::SandboxError| RuntimeError::Sandbox(error.into());
    NetworkPolicy::Full.within(&policy.network).map_err(refused)?;
    policy.models.connect(config, clients)?;
    Ok(policy)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").field("own", &self.own()).finish_non_exhaustive()
    }
}
