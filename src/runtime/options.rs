//! What a runtime is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::Gate;
use conjure_actors::metrics::MeterOptions;
use conjure_actors::registry::RegistryOptions;
use conjure_actors::session::SessionOptions;
use conjure_artifact::Fetch;
use conjure_base::{Clock, SystemClock, TenantId};
use conjure_conversation::{Compaction, Model};
#[cfg(feature = "sqlite")]
use conjure_journal::SqliteOptions;
use conjure_sandbox::Connector;
use conjure_toolbox::{AllowAll, Approver, Tool};

use super::models::Models;
use super::sandboxes::{ExecutorFactory, Own};
use super::tenants::TenantPolicy;
use crate::config::{Config, Environment, PoolSettings};

/// What a [`Runtime`](crate::Runtime) is made of. A [`Config`] alone makes one: its data folder, its kind of sandbox, its
/// folders of skills.
///
/// ```
/// use conjure::{Config, Environment, RuntimeOptions};
///
/// let environment = Environment::from_pairs([("HOME", "/home/ada")]);
/// let config = Config::layered(conjure::Settings::default(), &environment, None)?;
/// // With the user's data folder, and the models of `ANTHROPIC_API_KEY` where that is set.
/// let options = RuntimeOptions::from(config).for_user(&environment);
/// # let _ = options;
/// # Ok::<(), conjure::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct RuntimeOptions {
    pub(crate) config: Config,
    /// The folder that the host names, beside the configuration.
    pub(crate) data: Option<PathBuf>,
    pub(crate) record: Record,
    pub(crate) models: Models,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) approver: Arc<dyn Approver>,
    /// Instead of the guarded fetch.
    pub(crate) fetch: Option<Arc<dyn Fetch>>,
    /// Instead of that of the configuration.
    pub(crate) compaction: Option<Compaction>,
    pub(crate) owner: Option<String>,
    pub(crate) own: BTreeMap<String, Own>,
    pub(crate) sandbox_gate: Option<Gate>,
    /// Over those of the configuration.
    pub(crate) pool: PoolSettings,
    pub(crate) model_gate: Option<Gate>,
    pub(crate) standard: TenantPolicy,
    pub(crate) tenants: BTreeMap<TenantId, TenantPolicy>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The host's own connectors to container engines, whose leftovers the start removes.
    #[cfg(feature = "docker")]
    pub(crate) engines: Vec<conjure_sandbox::Docker>,
    pub(crate) project: Option<PathBuf>,
    pub(crate) treat: Arc<dyn Fn(&mut SessionOptions) + Send + Sync>,
    pub(crate) registry: RegistryOptions,
    pub(crate) sessions_per_tenant: usize,
    pub(crate) metrics: MeterOptions,
    pub(crate) retention: Option<Duration>,
    #[cfg(feature = "sqlite")]
    pub(crate) journal: SqliteOptions,
}

/// Where sessions are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// In the data folder, where one is named.
    OnDisk,
    InMemory,
}

impl From<Config> for RuntimeOptions {
    fn from(config: Config) -> Self {
        Self {
            config,
            data: None,
            record: Record::OnDisk,
            models: Models::default(),
            tools: Vec::new(),
            approver: Arc::new(AllowAll),
            fetch: None,
            compaction: None,
            owner: None,
            own: BTreeMap::new(),
            sandbox_gate: None,
            pool: PoolSettings::default(),
            model_gate: None,
            standard: TenantPolicy::default(),
            tenants: BTreeMap::new(),
            clock: Arc::new(SystemClock),
            #[cfg(feature = "docker")]
            engines: Vec::new(),
            project: None,
            treat: Arc::new(|_| {}),
            registry: RegistryOptions::default(),
            sessions_per_tenant: usize::MAX,
            metrics: MeterOptions::default(),
            retention: None,
            #[cfg(feature = "sqlite")]
            journal: SqliteOptions::default(),
        }
    }
}

impl RuntimeOptions {
    /// For the user of this environment: with their data folder, unless the configuration names one, and with the models of
    /// their key, where they have one.
    #[must_use]
    pub fn for_user(mut self, environment: &Environment) -> Self {
        self.data = self.data.or_else(|| environment.data_folder());
        #[cfg(feature = "anthropic")]
        if let Some(key) = environment.api_key() {
            self.models.set_key(key);
        }
        self
    }

    /// With its data in this folder, unless the configuration names one. Where nobody names one, all is temporary, as with
    /// [`RuntimeOptions::ephemeral`].
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// Sessions are kept in memory, and end with the process; their own workspaces, too.
    #[must_use]
    pub const fn ephemeral(mut self) -> Self {
        self.record = Record::InMemory;
        self
    }

    /// With this model. The first one is the default, unless [`RuntimeOptions::default_model`] names another.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.models.give(name.into(), Arc::new(model));
        self
    }

    /// With the models of the service, by their own names, as the configuration says, with this key. It is never printed, and
    /// redacted wherever a sandbox would let it out.
    #[cfg(feature = "anthropic")]
    #[must_use]
    pub fn anthropic(mut self, key: secrecy::SecretString) -> Self {
        self.models.set_key(key);
        self
    }

    /// Sessions that name no model have this one.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.models.default = Some(name.into());
        self
    }

    /// With this tool of the host, in all sessions.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// With this approver of tool calls; without one, every call is allowed.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Arc::new(approver);
        self
    }

    /// With URLs of artifacts fetched so, and not by the guarded fetch under `[artifacts]` of the configuration: by a way out of the host's
    /// own, such as a [`HttpFetch`](crate::HttpFetch) that may dial a private address. It sees to it by itself that nothing that one tenant
    /// has fetched is another's, and that no more is kept of it than the tenant may have ([`FetchRequest::cache_bytes`](crate::FetchRequest)).
    #[must_use]
    pub fn fetch(mut self, fetch: impl Fetch + 'static) -> Self {
        self.fetch = Some(Arc::new(fetch));
        self
    }

    /// With histories compacted that have grown long: instead of what the configuration says of that (`[compaction]` in its file), and
    /// by another summariser than the session's own model where the host has one. A session that is revived is treated as the
    /// runtime that revives it says.
    ///
    /// ```
    /// use conjure::{CompactionPolicy, Config, RuntimeOptions};
    ///
    /// let options = RuntimeOptions::from(Config::default()).compaction(CompactionPolicy::at(150_000));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn compaction(mut self, compaction: impl Into<Compaction>) -> Self {
        self.compaction = Some(compaction.into());
        self
    }

    /// Under this name, by which other processes know who has a session: one for each process, and another one after each
    /// start. A random one unless this is called.
    #[must_use]
    pub fn owner(mut self, name: impl Into<String>) -> Self {
        self.owner = Some(name.into());
        self
    }

    /// With sandboxes of the host's own making, for sessions that name them so ([`SessionSpec::sandbox`](crate::SessionSpec::sandbox)).
    #[must_use]
    pub fn connector(mut self, name: impl Into<String>, connector: impl Connector + 'static) -> Self {
        #[cfg(feature = "docker")]
        if let Some(docker) = (&connector as &dyn std::any::Any).downcast_ref::<conjure_sandbox::Docker>() {
            self.engines.push(docker.clone());
        }
        self.own.insert(name.into(), Own::Connector(Arc::new(connector)));
        self
    }

    /// With executors of the host's own, for sessions that name them so.
    #[must_use]
    pub fn executor(mut self, name: impl Into<String>, factory: impl ExecutorFactory + 'static) -> Self {
        self.own.insert(name.into(), Own::Factory(Arc::new(factory)));
        self
    }

    /// Every sandbox passes this gate, from before it is made until nothing of it is left: so many are live at a time, and
    /// tenants that wait are served by their shares. A session has its sandbox until it is put away.
    ///
    /// What runs in a sandbox is not bounded by it: a tenant whose share is as large as the number of processors can keep all of them
    /// busy, and slows others down by what the system's scheduler lets it. Where that matters, give a smaller share, or limit the
    /// processors of a sandbox ([`Limits`](crate::Limits)). `benches/fairness.rs` measures both.
    ///
    /// ```
    /// use conjure::{Config, Gate, RuntimeOptions, Share, TenantId};
    ///
    /// let gate = Gate::new("the sandboxes", 64, Share { admitted: 16, ..Share::default() });
    /// let options = RuntimeOptions::from(Config::default()).sandbox_gate(gate.clone());
    /// // At any time:
    /// gate.set_share(&TenantId::new("acme")?, Some(Share { admitted: 32, ..Share::default() }));
    /// # let _ = options;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sandbox_gate(mut self, gate: Gate) -> Self {
        self.sandbox_gate = Some(gate);
        self
    }

    /// With sandboxes that are made before a session needs them, over what the configuration says of that (`[pool]` in its file).
    ///
    /// ```
    /// use conjure::{Config, PoolSettings, RuntimeOptions};
    ///
    /// let options = RuntimeOptions::from(Config::default()).pool(PoolSettings { jail: Some(4), ..PoolSettings::default() });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn pool(mut self, settings: PoolSettings) -> Self {
        self.pool = settings;
        self
    }

    /// Every call of a model passes this gate, from before its request is sent until its answer is there.
    #[must_use]
    pub fn model_gate(mut self, gate: Gate) -> Self {
        self.model_gate = Some(gate);
        self
    }

    /// This tenant may have what this policy says, and nothing else counts for it but what the host has for all.
    #[must_use]
    pub fn tenant(mut self, tenant: TenantId, policy: TenantPolicy) -> Self {
        self.tenants.insert(tenant, policy);
        self
    }

    /// Each tenant of which nothing else is said may have what this policy says: also those that nobody has heard of before. Unless
    /// this is called, they may have whatever the host has. A host that serves only those that it names gives a policy with
    /// [`TenantPolicy::recorded_sessions`] of 0.
    #[must_use]
    pub fn tenants(mut self, policy: TenantPolicy) -> Self {
        self.standard = policy;
        self
    }

    /// Which day it is, for the budgets of tenants, is known by this clock. The machine's unless this is called.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// For a program that runs in this project: its own skills are among those of the default catalog, where it is trusted.
    #[must_use]
    pub fn project(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project = Some(folder.into());
        self
    }

    /// Treats sessions so: how long they stay live, what becomes of a sandbox that no call uses, how long a lease lasts, and others.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use conjure::{Config, RuntimeOptions};
    /// let options = RuntimeOptions::from(Config::default()).sessions(|sessions| {
    ///     // What runs in the background stands still until the next call.
    ///     sessions.executors.pause_after = Some(Duration::from_secs(30));
    ///     // The sandbox ends, its workspace stays; the next call has another made.
    ///     sessions.executors.unused_after = Some(Duration::from_secs(600));
    ///     // The session is put away; the next message revives it.
    ///     sessions.idle_after = Duration::from_secs(3600);
    /// });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn sessions(mut self, treat: impl Fn(&mut SessionOptions) + Send + Sync + 'static) -> Self {
        self.treat = Arc::new(treat);
        self
    }

    /// Notices changes of skills so.
    #[must_use]
    pub const fn registry(mut self, options: RegistryOptions) -> Self {
        self.registry = options;
        self
    }

    /// No tenant has more live sessions than this; those that are put away do not count.
    #[must_use]
    pub const fn sessions_per_tenant(mut self, most: usize) -> Self {
        self.sessions_per_tenant = most;
        self
    }

    /// Sessions of which nothing was recorded for so long are deleted in the background, with their workspaces: unless somebody holds
    /// a handle of them, also where a tool call waits for a person. Without this they stay until they are deleted. What counts is
    /// the wall clock, while it goes on as time does: after it was set, nothing is deleted until the next look.
    #[must_use]
    pub const fn retention(mut self, time: Duration) -> Self {
        self.retention = Some(time);
        self
    }

    /// Counted so, by the `metrics` facade, where the host has installed a recorder before: [`metrics::names`](crate::metrics::names)
    /// lists what there is.
    #[must_use]
    pub const fn metrics(mut self, options: MeterOptions) -> Self {
        self.metrics = options;
        self
    }

    /// With such a journal.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn journal(mut self, options: SqliteOptions) -> Self {
        self.journal = options;
        self
    }
}

impl fmt::Debug for RuntimeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeOptions")
            .field("data", &self.config.data().or(self.data.as_deref()))
            .field("record", &self.record)
            .field("models", &self.models)
            .field("sandboxes", &self.own.keys())
            .finish_non_exhaustive()
    }
}
