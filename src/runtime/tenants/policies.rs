//! The policies in force, and what follows them: the gates, and the weights in the journal.
//!
//! State: in memory. A host says them anew at each start.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_actors::admission::{Gate, GateLoad, Share};
use conjure_base::{Digest, TenantId};
use conjure_journal::Weights;
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

/// The gates that tenants pass.
pub(crate) struct Gates {
    /// What every sandbox passes.
    pub(crate) sandboxes: Gate,
    /// What every model call passes.
    pub(crate) model_calls: Gate,
    /// What the start of a sandbox passes, one for each kind.
    pub(crate) starts: Vec<Gate>,
}

struct Inner {
    gates: Gates,
    /// All of them, and what follows from a policy.
    following: Vec<Following>,
    /// By which the journal goes.
    weights: Weights,
    clients: Clients,
    /// Which key the host has, where it has one: its client stays.
    key: Option<Digest>,
    state: Mutex<State>,
}

/// A gate that follows the policies.
struct Following {
    gate: Gate,
    /// What it gave all tenants at first.
    first: Share,
    /// What a tenant of this policy has of it, where that says nothing else.
    share: fn(&TenantPolicy, Share) -> Share,
}

struct State {
    standard: Arc<TenantPolicy>,
    own: BTreeMap<TenantId, Arc<TenantPolicy>>,
}

/// The key of the service that a tenant was given for itself.
#[cfg(feature = "anthropic")]
pub(crate) enum OwnKey {
    /// It has none: its sessions use what everybody's do.
    None,
    /// The host, or another tenant, has it as well.
    Shared(crate::anthropic::Client),
    Alone(crate::anthropic::Client),
}

impl Policies {
    /// With these gates; every tenant may have what `standard` says, but for those that have policies of their own.
    pub(crate) fn new(
        gates: Gates,
        standard: TenantPolicy,
        own: BTreeMap<TenantId, TenantPolicy>,
        (clients, key): (Clients, Option<Digest>),
        config: &Config,
    ) -> Result<Self, RuntimeError> {
        let standard = made(standard, &clients, config)?;
        let following = gates.following();
        for gate in &following {
            gate.gate.set_standard((gate.share)(&standard, gate.first));
        }
        let weights = Weights::default();
        weights.set_standard(standard.weight_in_journal());
        let state = Mutex::new(State { standard: Arc::new(standard), own: BTreeMap::new() });
        let policies = Self { inner: Arc::new(Inner { gates, following, weights, clients, key, state }) };
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
        for Following { gate, first, share } in &inner.following {
            gate.set_share(tenant, policy.as_ref().map(|policy| share(policy, *first)));
        }
        inner.weights.set(tenant, policy.as_ref().map(TenantPolicy::weight_in_journal));
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

    /// Whose the key is that the tenant was given for itself.
    #[cfg(feature = "anthropic")]
    pub(crate) fn own_key(&self, tenant: &TenantId) -> OwnKey {
        let state = self.inner.lock();
        let Some(own) = state.own.get(tenant) else { return OwnKey::None };
        let (Some(client), key) = (own.models.client(), own.models.key_digest()) else { return OwnKey::None };
        let others = state.own.iter().filter(|(other, _)| *other != tenant).map(|(_, policy)| policy);
        let mut others = others.chain([&state.standard]).map(|policy| policy.models.key_digest());
        let is_shared = self.inner.key == key || others.any(|other| other == key);
        if is_shared { OwnKey::Shared(client.clone()) } else { OwnKey::Alone(client.clone()) }
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
        &self.inner.gates.sandboxes
    }

    /// What every model call passes.
    pub(crate) fn model_calls(&self) -> &Gate {
        &self.inner.gates.model_calls
    }

    /// What tenants have of the journal.
    pub(crate) fn weights(&self) -> &Weights {
        &self.inner.weights
    }

    /// What the tenant has of sandboxes and of model calls.
    pub(crate) fn loads(&self, tenant: &TenantId) -> [GateLoad; 2] {
        [self.sandboxes().load_of(tenant), self.model_calls().load_of(tenant)]
    }
}

impl Gates {
    fn following(&self) -> Vec<Following> {
        let follow = |gate: &Gate, share| Following { gate: gate.clone(), first: gate.standard(), share };
        let starts = self.starts.iter().map(|gate| follow(gate, TenantPolicy::share_of_starts));
        [
            follow(&self.sandboxes, TenantPolicy::share_of_sandboxes),
            follow(&self.model_calls, TenantPolicy::share_of_model_calls),
        ]
        .into_iter()
        .chain(starts)
        .collect()
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
