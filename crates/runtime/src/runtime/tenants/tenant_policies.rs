//! The policies in force. They set the shares of the admission gates and the weights in the journal.
//!
//! State: the policies, in memory. The embedder sets them again at each start.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_actors::admission::{AdmissionGate, AdmissionLoad, Share};
use conjure_base::{Digest, TenantId, lock};
use conjure_journal::TenantWeights;
use conjure_sandbox::NetworkPolicy;

use crate::config::Config;
use crate::models::ModelClients;
use crate::runtime::error::RuntimeError;
use crate::runtime::tenants::tenant_policy::TenantPolicy;

/// The policies of all tenants. Clones share them.
#[derive(Clone)]
pub(crate) struct TenantPolicies {
    inner: Arc<Inner>,
}

/// The admission gates of a runtime.
pub(crate) struct Gates {
    /// The gate of all sandboxes.
    pub(crate) sandboxes: AdmissionGate,
    /// The gate of all model calls.
    pub(crate) model_calls: AdmissionGate,
    /// The gates of sandbox starts, one for each kind.
    pub(crate) starts: Vec<AdmissionGate>,
}

struct Inner {
    gates: Gates,
    /// All gates, with the part of the policy that each follows.
    policy_gates: Vec<PolicyBoundGate>,
    /// The weights in the journal.
    weights: TenantWeights,
    clients: ModelClients,
    /// The digest of the embedder's key. The client of this key is always kept.
    key: Option<Digest>,
    state: Mutex<State>,
}

/// A gate that follows the policies.
struct PolicyBoundGate {
    gate: AdmissionGate,
    /// The gate's default share before any policy was set.
    initial_share: Share,
    /// The share of a tenant with this policy. The given share is the default.
    share: fn(&TenantPolicy, Share) -> Share,
}

struct State {
    default: Arc<TenantPolicy>,
    overrides: BTreeMap<TenantId, Arc<TenantPolicy>>,
}

/// Whether the tenant has a key of its own, and whether others have the same key.
#[cfg(feature = "anthropic")]
pub(crate) enum TenantKey {
    /// The tenant has no key of its own, and uses the embedder's.
    None,
    /// The embedder or another tenant has the same key.
    Shared(crate::anthropic::Client),
    Exclusive(crate::anthropic::Client),
}

impl TenantPolicies {
    /// Policies for these gates. `default_policy` is the default for tenants without a policy of their own.
    pub(crate) fn new(
        gates: Gates,
        default_policy: TenantPolicy,
        overrides: BTreeMap<TenantId, TenantPolicy>,
        (clients, key): (ModelClients, Option<Digest>),
        config: &Config,
    ) -> Result<Self, RuntimeError> {
        let default_policy = validate_policy(default_policy, &clients, config)?;
        let policy_gates = gates.policy_gates();
        for gate in &policy_gates {
            gate.gate.set_default_share((gate.share)(&default_policy, gate.initial_share));
        }
        let weights = TenantWeights::default();
        weights.set_default(default_policy.weight_in_journal());
        let state = Mutex::new(State { default: Arc::new(default_policy), overrides: BTreeMap::new() });
        let policies = Self { inner: Arc::new(Inner { gates, policy_gates, weights, clients, key, state }) };
        for (tenant, policy) in overrides {
            policies.set(&tenant, Some(policy), config)?;
        }
        Ok(policies)
    }

    /// Sets the tenant's policy. `None` resets it to the default policy.
    pub(crate) fn set(
        &self,
        tenant: &TenantId,
        policy: Option<TenantPolicy>,
        config: &Config,
    ) -> Result<Arc<TenantPolicy>, RuntimeError> {
        let inner = &self.inner;
        let policy = policy.map(|policy| validate_policy(policy, &inner.clients, config)).transpose()?;
        let mut state = inner.lock();
        for PolicyBoundGate { gate, initial_share, share } in &inner.policy_gates {
            gate.set_share(tenant, policy.as_ref().map(|policy| share(policy, *initial_share)));
        }
        inner.weights.set(tenant, policy.as_ref().map(TenantPolicy::weight_in_journal));
        let policy = match policy {
            Some(policy) => {
                let policy = Arc::new(policy);
                state.overrides.insert(tenant.clone(), Arc::clone(&policy));
                policy
            }
            None => {
                state.overrides.remove(tenant);
                Arc::clone(&state.default)
            }
        };
        // Clients of keys that no policy has any more are dropped.
        let used =
            state.overrides.values().chain([&state.default]).filter_map(|policy| policy.models.key_digest());
        let used = used.chain(inner.key);
        inner.clients.retain_used(&used.collect());
        Ok(policy)
    }

    /// The tenant's policy.
    pub(crate) fn policy(&self, tenant: &TenantId) -> Arc<TenantPolicy> {
        let state = self.inner.lock();
        Arc::clone(state.overrides.get(tenant).unwrap_or(&state.default))
    }

    /// Whether others have the tenant's own key.
    #[cfg(feature = "anthropic")]
    pub(crate) fn tenant_key(&self, tenant: &TenantId) -> TenantKey {
        let state = self.inner.lock();
        let Some(own) = state.overrides.get(tenant) else { return TenantKey::None };
        let (Some(client), key) = (own.models.client(), own.models.key_digest()) else {
            return TenantKey::None;
        };
        let others = state.overrides.iter().filter(|(other, _)| *other != tenant).map(|(_, policy)| policy);
        let mut others = others.chain([&state.default]).map(|policy| policy.models.key_digest());
        let is_shared = self.inner.key == key || others.any(|other| other == key);
        if is_shared { TenantKey::Shared(client.clone()) } else { TenantKey::Exclusive(client.clone()) }
    }

    /// The default policy.
    pub(crate) fn default_policy(&self) -> Arc<TenantPolicy> {
        Arc::clone(&self.inner.lock().default)
    }

    /// The tenants with a policy of their own.
    pub(crate) fn overridden(&self) -> Vec<TenantId> {
        self.inner.lock().overrides.keys().cloned().collect()
    }

    /// The gate of all sandboxes.
    pub(crate) fn sandboxes(&self) -> &AdmissionGate {
        &self.inner.gates.sandboxes
    }

    /// The gate of all model calls.
    pub(crate) fn model_calls(&self) -> &AdmissionGate {
        &self.inner.gates.model_calls
    }

    /// The weights of tenants in the journal.
    pub(crate) fn weights(&self) -> &TenantWeights {
        &self.inner.weights
    }

    /// The tenant's load on the gates of sandboxes and of model calls.
    pub(crate) fn loads(&self, tenant: &TenantId) -> [AdmissionLoad; 2] {
        [self.sandboxes().tenant_load(tenant), self.model_calls().tenant_load(tenant)]
    }
}

impl Gates {
    fn policy_gates(&self) -> Vec<PolicyBoundGate> {
        let follow = |gate: &AdmissionGate, share| PolicyBoundGate {
            gate: gate.clone(),
            initial_share: gate.default_share(),
            share,
        };
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

/// Checks a policy, and creates the client of its key.
fn validate_policy(
    mut policy: TenantPolicy,
    clients: &ModelClients,
    config: &Config,
) -> Result<TenantPolicy, RuntimeError> {
    let refused = |error: conjure_sandbox::SandboxError| RuntimeError::Sandbox(error.into());
    NetworkPolicy::Full.restricted_to(&policy.network).map_err(refused)?;
    policy.models.connect(config, clients)?;
    Ok(policy)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete, so a poisoned lock is usable.
        lock(&self.state)
    }
}

impl fmt::Debug for TenantPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantPolicies").field("overridden", &self.overridden()).finish_non_exhaustive()
    }
}
