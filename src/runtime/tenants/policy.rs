//! What a tenant may have.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::Share;
use conjure_actors::tenants::{Budget, Terms};
use conjure_base::Redactor;
use conjure_conversation::{Limits, Model};
use conjure_sandbox::{Isolation, NetworkPolicy};

use super::super::given::{Complete, Given};
use super::super::models::Models;
use crate::context::{ContextOptions, redactor_with};

/// What a tenant may have. Where it says nothing, the tenant may have whatever the host has for all.
///
/// A quota of zero is none ever: what needs one is refused at once, by an error that names it. Quotas count from the moment in
/// which they are set; what a tenant has beyond them by then stays, and no more is added.
///
/// ```
/// use std::time::Duration;
/// use conjure::{Budget, Money, NetworkPolicy, Period, Price, TenantPolicy};
///
/// let price = Price { input: 3_000_000, output: 15_000_000 };
/// let policy = TenantPolicy::new()
///     .weight(3)
///     .live_sessions(100)
///     .sandboxes(8)
///     .model_calls(16)
///     .disk_bytes(10 << 30)
///     .artifact_cache_bytes(20 << 20)
///     .budget(Budget::default().money(Period::Month, Money { micros: 50_000_000, price }))
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
    pub(crate) artifact_cache_bytes: u64,
    terms: Terms,
    pub(crate) models: Models,
    given: Given,
    pub(crate) network: NetworkPolicy,
    pub(crate) floor: Isolation,
    pub(crate) limits: Option<Limits>,
}

impl Default for TenantPolicy {
    /// Whatever the host has.
    fn default() -> Self {
        Self {
            weight: None,
            sandboxes: None,
            waiting_sandboxes: None,
            model_calls: None,
            waiting_model_calls: None,
            disk_bytes: u64::MAX,
            inodes: u64::MAX,
            artifact_cache_bytes: u64::MAX,
            terms: Terms::default(),
            models: Models::default(),
            given: Given::default(),
            network: NetworkPolicy::Full,
            floor: Isolation::NONE,
            limits: None,
        }
    }
}

impl TenantPolicy {
    /// Whatever the host has.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this part of sandboxes, of their starts and of model calls in relation to other tenants', when not all find room
    /// ([`Share::weight`](crate::Share)), and of what the journal writes and reads, when calls wait for it: there, large bodies
    /// count for more. 0 counts as 1.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = NonZeroU32::new(weight).or(Some(NonZeroU32::MIN));
        self
    }

    /// With no more live sessions than this; those that are put away do not count. A further one is refused.
    #[must_use]
    pub const fn live_sessions(mut self, most: u64) -> Self {
        self.terms.live_sessions = most;
        self
    }

    /// With no more recorded sessions than this, live or not. A further one is refused. Where several processes open sessions of
    /// the tenant in the same moment, each of them may be one too many.
    #[must_use]
    pub const fn recorded_sessions(mut self, most: u64) -> Self {
        self.terms.recorded_sessions = most;
        self
    }

    /// With no more messages than this that wait for their turn, in each session. A further one is refused.
    #[must_use]
    pub const fn queued_messages(mut self, most: usize) -> Self {
        self.terms.queued_messages = most;
        self
    }

    /// With no more live sandboxes than this. A further one is waited for, and not had in time told to the model.
    #[must_use]
    pub const fn sandboxes(mut self, most: u32) -> Self {
        self.sandboxes = Some(most);
        self
    }

    /// No more sandboxes than this are waited for. A further one is refused at once.
    #[must_use]
    pub const fn waiting_sandboxes(mut self, most: u32) -> Self {
        self.waiting_sandboxes = Some(most);
        self
    }

    /// With no more model calls than this at a time. A further one waits.
    #[must_use]
    pub const fn model_calls(mut self, most: u32) -> Self {
        self.model_calls = Some(most);
        self
    }

    /// No more model calls than this wait. A further one fails at once as overloaded, and its turn with it.
    #[must_use]
    pub const fn waiting_model_calls(mut self, most: u32) -> Self {
        self.waiting_model_calls = Some(most);
        self
    }

    /// With no more bytes than this on the disk: in its data folder, as workspaces, skills, artifacts and what sandboxes read, and in
    /// the journal, as what its sessions recorded. Where it has more, no session is opened, no sandbox is made, and nothing is run or
    /// written in those that are there; what is said in sessions that are open is recorded still. What a host gives a session, or
    /// takes of what one produced, is refused before it is copied where it would be more with it. It is measured in the
    /// background and before a refusal, so calls that run may exceed it; what one workspace may take is limited by the
    /// configuration. Where it cannot be measured whole, it counts as full: where folders lie more than 128 deep, where
    /// this process may not read one, and above 4,000,000 names. Where nothing is recorded on the disk, the journal does not count.
    ///
    /// Of the journal, bodies count, names of kinds, and 64 bytes for each session, event and snapshot, but not the database's own
    /// indexes and free pages; large bodies lie in files, and count as those do.
    #[must_use]
    pub const fn disk_bytes(mut self, most: u64) -> Self {
        self.disk_bytes = most;
        self
    }

    /// The same with files and folders.
    #[must_use]
    pub const fn inodes(mut self, most: u64) -> Self {
        self.inodes = most;
        self
    }

    /// With no more bytes than this kept of what its URLs led to, over all of its sessions: where this is less than what the
    /// configuration has for every tenant (`cache_max_size` of `[artifacts]`). What was used least lately goes first, and is fetched
    /// again when somebody wants it; what is larger is fetched each time, and with 0 everything is. Less than before holds from the
    /// next use of a URL on.
    ///
    /// It is about what is fetched anew, and not about the disk ([`TenantPolicy::disk_bytes`]): bytes that nobody has any more are
    /// removed with the other contents that were not used for a month.
    #[must_use]
    pub const fn artifact_cache_bytes(mut self, most: u64) -> Self {
        self.artifact_cache_bytes = most;
        self
    }

    /// With what its model calls may come to, over all of its sessions.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.terms.budget = budget;
        self
    }

    /// With this model, for its sessions alone, also in place of one of the host's of this name. The first one is the default of
    /// its sessions, unless [`TenantPolicy::default_model`] names another.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.models.give(name.into(), Arc::new(model));
        self
    }

    /// With the models of the service under this key of its own: its sessions never use the host's. Tenants with one key share
    /// its limiter, and those with different keys share none. It is never printed, and redacted wherever it would leave.
    #[cfg(feature = "anthropic")]
    #[must_use]
    pub fn anthropic(mut self, key: secrecy::SecretString) -> Self {
        self.models.set_key(key);
        self
    }

    /// Its sessions that name no model have this one.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.models.default = Some(name.into());
        self
    }

    /// With this variable for the commands of all its sessions, unless a session has one of this name. It is not recorded.
    /// Where its name looks like that of a secret, its value is redacted wherever it would leave.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.given = self.given.environment(name, value);
        self
    }

    /// With this value, which commands of its sessions do not see. Should they get hold of it, it is redacted wherever it would
    /// leave. It is not recorded.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.given = self.given.secret(name, value);
        self
    }

    /// It reaches no more of the network than this: its sandboxes what the configuration allows and this does, too, and the host
    /// fetches no other URLs for its sessions, redirects included.
    #[must_use]
    pub fn network(mut self, most: NetworkPolicy) -> Self {
        self.network = most;
        self
    }

    /// Its sandboxes must enforce this, beside what the configuration demands.
    #[must_use]
    pub fn floor(mut self, floor: Isolation) -> Self {
        self.floor = self.floor.or(&floor);
        self
    }

    /// With these limits for each turn of sessions that name none, instead of the configuration's.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Its idle sessions are put away after this, from their next start on.
    #[must_use]
    pub const fn idle_after(mut self, idle: Duration) -> Self {
        self.terms.idle_after = Some(idle);
        self
    }

    pub(crate) const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What its data folder may take, where that is limited.
    pub(crate) const fn limits_disk(&self) -> bool {
        self.disk_bytes < u64::MAX || self.inodes < u64::MAX
    }

    /// Its share of sandboxes, where all others have this.
    pub(crate) fn share_of_sandboxes(&self, standard: Share) -> Share {
        self.share(standard, self.sandboxes, self.waiting_sandboxes)
    }

    /// Its share of model calls, where all others have this.
    pub(crate) fn share_of_model_calls(&self, standard: Share) -> Share {
        self.share(standard, self.model_calls, self.waiting_model_calls)
    }

    /// Its share of the starts of sandboxes, where all others have this: how many it may have is said of the sandboxes
    /// themselves.
    pub(crate) fn share_of_starts(&self, standard: Share) -> Share {
        self.share(standard, None, None)
    }

    /// Its part of the journal, where all others have 1.
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

    /// Adds to what a session has what all of the tenant's have.
    pub(crate) fn complete(&self, session: &mut Complete) {
        let Complete { environment, secrets } = self.given.clone().all();
        for (name, value) in environment {
            session.environment.entry(name).or_insert(value);
        }
        for (name, value) in secrets {
            session.secrets.entry(name).or_insert(value);
        }
    }

    /// What must not leave any of its sessions.
    pub(crate) fn redactor(&self) -> Redactor {
        let Complete { environment, secrets } = self.given.clone().all();
        let options = ContextOptions { environment, secrets, ..ContextOptions::default() };
        redactor_with(&options, &self.models.secrets())
    }
}

/// Without values: they may be secrets.
impl fmt::Debug for TenantPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantPolicy")
            .field("weight", &self.weight)
            .field("sandboxes", &self.sandboxes)
            .field("model_calls", &self.model_calls)
            .field("disk_bytes", &self.disk_bytes)
            .field("inodes", &self.inodes)
            .field("artifact_cache_bytes", &self.artifact_cache_bytes)
            .field("terms", &self.terms)
            .field("models", &self.models)
            .field("given", &self.given)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}
