//! The policy of a tenant.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::Share;
use conjure_actors::tenants::{Budget, TenantLimits};
use conjure_base::Redactor;
use conjure_conversation::{Limits, Model};
use conjure_sandbox::{Isolation, NetworkPolicy};

use crate::context::{ContextOptions, redactor_with};
use crate::runtime::model_registry::ModelRegistry;
use crate::runtime::session::input::session_secrets::{CompleteSecrets, SessionSecrets};

/// The limits, secrets and models of a tenant. Without a limit here, the embedder's general limits apply.
///
/// A quota of zero allows nothing, and the error names the quota. A quota applies from the moment in which it is set.
/// If a tenant has more than that, the excess stays, but the tenant gets no more.
///
/// ```
/// use std::time::Duration;
/// use conjure::TenantPolicy;
/// use conjure::sandbox::NetworkPolicy;
/// use conjure::tenant::{Budget, CostLimit, Period, Price};
///
/// let price = Price { input: 3_000_000, output: 15_000_000 };
/// let policy = TenantPolicy::new()
///     .weight(3)
///     .live_sessions(100)
///     .sandboxes(8)
///     .model_calls(16)
///     .disk_bytes(10 << 30)
///     .budget(Budget::default().money(Period::Month, CostLimit { micros: 50_000_000, price }))
///     .secret("CRM_KEY", "hunter2")
///     .network(NetworkPolicy::Limited(vec!["*.example.com".to_owned()]))
///     .idle_after(Duration::from_secs(60));
/// // A value may be a secret, so none shows.
/// assert!(!format!("{policy:?}").contains("hunter2"));
/// ```
#[derive(Clone)]
pub struct TenantPolicy {
    weight: Option<NonZeroU32>,
    sandboxes: Option<u32>,
    waiting_sandboxes: Option<u32>,
    model_calls: Option<u32>,
    waiting_model_calls: Option<u32>,
    pub(crate) disk_bytes: u64,
    pub(crate) inodes: u64,
    terms: TenantLimits,
    pub(crate) models: ModelRegistry,
    secrets: SessionSecrets,
    pub(crate) network: NetworkPolicy,
    pub(crate) floor: Isolation,
    pub(crate) limits: Option<Limits>,
}

impl Default for TenantPolicy {
    /// The embedder's limits.
    fn default() -> Self {
        Self {
            weight: None,
            sandboxes: None,
            waiting_sandboxes: None,
            model_calls: None,
            waiting_model_calls: None,
            disk_bytes: u64::MAX,
            inodes: u64::MAX,
            terms: TenantLimits::default(),
            models: ModelRegistry::default(),
            secrets: SessionSecrets::default(),
            network: NetworkPolicy::Full,
            floor: Isolation::NONE,
            limits: None,
        }
    }
}

impl TenantPolicy {
    /// A policy with the embedder's limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tenant's weight in relation to other tenants, when not all can be served. 0 counts as 1. It applies to:
    ///
    /// - sandboxes, their starts, and model calls ([`Share::weight`](conjure_actors::admission::Share))
    /// - the journal's reads and writes, where large bodies cost more
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = NonZeroU32::new(weight).or(Some(NonZeroU32::MIN));
        self
    }

    /// The most live sessions. Passivated sessions do not count. Another live session is refused.
    #[must_use]
    pub const fn live_sessions(mut self, most: u64) -> Self {
        self.terms.live_sessions = most;
        self
    }

    /// The most recorded sessions, live or not. Another one is refused. When several processes open sessions of the
    /// tenant at the same moment, each may exceed it by one.
    #[must_use]
    pub const fn recorded_sessions(mut self, most: u64) -> Self {
        self.terms.recorded_sessions = most;
        self
    }

    /// The most queued messages of each session. Another one is refused.
    #[must_use]
    pub const fn queued_messages(mut self, most: usize) -> Self {
        self.terms.queued_messages = most;
        self
    }

    /// The most live sandboxes. Another one waits. If none becomes available in time, the model gets an error.
    #[must_use]
    pub const fn sandboxes(mut self, most: u32) -> Self {
        self.sandboxes = Some(most);
        self
    }

    /// The most waiting sandboxes. Another one is refused at once.
    #[must_use]
    pub const fn waiting_sandboxes(mut self, most: u32) -> Self {
        self.waiting_sandboxes = Some(most);
        self
    }

    /// The most concurrent model calls. Another one waits.
    #[must_use]
    pub const fn model_calls(mut self, most: u32) -> Self {
        self.model_calls = Some(most);
        self
    }

    /// The most waiting model calls. Another one fails at once as overloaded, and so does its turn.
    #[must_use]
    pub const fn waiting_model_calls(mut self, most: u32) -> Self {
        self.waiting_model_calls = Some(most);
        self
    }

    /// The most bytes on the disk: in the tenant's data directory and in the journal.
    ///
    /// - Above the quota, no session is opened, no sandbox is created, and no call runs or writes anything in existing
    ///   ones. Messages of open sessions are still recorded.
    /// - An artifact, or a copy of a produced file, is refused before it is copied if it would exceed the quota.
    /// - The usage is measured in the background and before a refusal. So a running call may exceed the quota. The
    ///   configuration limits each workspace.
    /// - A directory that cannot be measured completely counts as full. This is so if it is deeper than 128 levels, if
    ///   this process cannot read it, or if it has more than 4,000,000 entries.
    /// - A journal in memory does not count. For a journal on the disk, these count: bodies, the names of kinds, and 64
    ///   bytes for each session, event and snapshot. The database's indexes and free pages do not count.
    #[must_use]
    pub const fn disk_bytes(mut self, most: u64) -> Self {
        self.disk_bytes = most;
        self
    }

    /// The most files and directories on the disk. Otherwise it works as [`TenantPolicy::disk_bytes`].
    #[must_use]
    pub const fn inodes(mut self, most: u64) -> Self {
        self.inodes = most;
        self
    }

    /// The budget of the tenant's model calls, over all of its sessions.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.terms.budget = budget;
        self
    }

    /// Adds a model for this tenant's sessions only. It replaces the embedder's model of this name. The first model is
    /// the default of the tenant's sessions, unless [`TenantPolicy::default_model`] names another.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.models.add(name.into(), Arc::new(model));
        self
    }

    /// Adds the models of the Messages API under a key of the tenant's own. For this API, the tenant's sessions never
    /// use the embedder's key. For models of other services they do. Tenants with the same key share its rate limiter.
    ///
    /// The key is never printed. It is redacted in all outgoing text.
    #[cfg(feature = "anthropic")]
    #[must_use]
    pub fn anthropic(mut self, key: secrecy::SecretString) -> Self {
        self.models.set_key(key);
        self
    }

    /// Names the model of the tenant's sessions that name none.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.models.default = Some(name.into());
        self
    }

    /// Adds an environment variable for the commands of all the tenant's sessions. A session's own variable of this
    /// name takes precedence. The variable is not recorded. If its name looks like that of a secret, its value is
    /// redacted in all outgoing text.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets = self.secrets.environment(name, value);
        self
    }

    /// Adds a secret, which commands of the tenant's sessions do not see. It is not recorded, and is redacted in all
    /// outgoing text.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets = self.secrets.secret(name, value);
        self
    }

    /// Limits the tenant's network. Its sandboxes reach only what both the configuration and this policy allow. URLs
    /// for its sessions are fetched only from these hosts, and redirects are followed only to these hosts.
    #[must_use]
    pub fn network(mut self, most: NetworkPolicy) -> Self {
        self.network = most;
        self
    }

    /// The isolation that the tenant's sandboxes must enforce, in addition to the configuration's requirements.
    #[must_use]
    pub fn floor(mut self, floor: Isolation) -> Self {
        self.floor = self.floor.or(&floor);
        self
    }

    /// The limits of each turn for sessions that name none, instead of the configuration's.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// How long the tenant's sessions may be idle before they are passivated. Applies to a session from its next start
    /// on.
    #[must_use]
    pub const fn idle_after(mut self, idle: Duration) -> Self {
        self.terms.idle_after = Some(idle);
        self
    }

    pub(crate) const fn terms(&self) -> &TenantLimits {
        &self.terms
    }

    /// Whether the disk usage is limited.
    pub(crate) const fn limits_disk(&self) -> bool {
        self.disk_bytes < u64::MAX || self.inodes < u64::MAX
    }

    /// The tenant's share of sandboxes. `standard` is the share of all others.
    pub(crate) fn share_of_sandboxes(&self, standard: Share) -> Share {
        self.share(standard, self.sandboxes, self.waiting_sandboxes)
    }

    /// The tenant's share of model calls. `standard` is the share of all others.
    pub(crate) fn share_of_model_calls(&self, standard: Share) -> Share {
        self.share(standard, self.model_calls, self.waiting_model_calls)
    }

    /// The tenant's share of sandbox starts. `standard` is the share of all others. The number of sandboxes is limited
    /// by another gate.
    pub(crate) fn share_of_starts(&self, standard: Share) -> Share {
        self.share(standard, None, None)
    }

    /// The tenant's weight in the journal. The default is 1.
    pub(crate) fn weight_in_journal(&self) -> NonZeroU32 {
        self.weight.unwrap_or(NonZeroU32::MIN)
    }

    fn share(&self, standard: Share, admitted: Option<u32>, waiting: Option<u32>) -> Share {
        Share {
            weight: self.weight.unwrap_or(standard.weight),
            admitted: admitted.unwrap_or(standard.admitted),
            waiting: waiting.unwrap_or(standard.waiting),
        }
    }

    /// Adds the tenant's variables and secrets to those of a session.
    pub(crate) fn apply_defaults(&self, session: &mut CompleteSecrets) {
        let CompleteSecrets { environment, secrets } = self.secrets.clone().into_complete();
        for (name, value) in environment {
            session.environment.entry(name).or_insert(value);
        }
        for (name, value) in secrets {
            session.secrets.entry(name).or_insert(value);
        }
    }

    /// The redactor for the tenant's secrets.
    pub(crate) fn redactor(&self) -> Redactor {
        let CompleteSecrets { environment, secrets } = self.secrets.clone().into_complete();
        let options = ContextOptions { environment, secrets, ..ContextOptions::default() };
        redactor_with(&options, &self.models.own_key())
    }
}

/// Leaves out values, because they may be secrets.
impl fmt::Debug for TenantPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantPolicy")
            .field("weight", &self.weight)
            .field("sandboxes", &self.sandboxes)
            .field("model_calls", &self.model_calls)
            .field("disk_bytes", &self.disk_bytes)
            .field("inodes", &self.inodes)
            .field("terms", &self.terms)
            .field("models", &self.models)
            .field("given", &self.secrets)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}
