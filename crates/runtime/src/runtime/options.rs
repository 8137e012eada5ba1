//! The options of a runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::AdmissionGate;
use conjure_actors::catalogs::RegistryOptions;
use conjure_actors::metrics::MetricsOptions;
use conjure_actors::session::SessionOptions;
use conjure_artifact::Fetch;
use conjure_base::{Clock, SystemClock, TenantId};
use conjure_conversation::{Compaction, Model};
#[cfg(feature = "sqlite")]
use conjure_journal::SqliteOptions;
use conjure_sandbox::Connector;
use conjure_toolbox::{AllowAll, Approver, Tool};

use crate::config::{Config, PoolSettings, ProcessEnv};
use crate::runtime::model_registry::ModelRegistry;
use crate::runtime::sandbox_kinds::{CustomSandbox, ExecutorFactory};
use crate::runtime::tenants::TenantPolicy;

/// The options of a [`Runtime`](crate::Runtime). A [`Config`] alone is enough: it has the data directory, the kind of
/// sandbox, and the directories of skills.
///
/// ```
/// use conjure::{Config, ProcessEnv, RuntimeOptions};
///
/// let environment = ProcessEnv::from_pairs([("HOME", "/home/ada")]);
/// let config = Config::from_layers(conjure::Settings::default(), &environment, None)?;
/// // With the user's data directory, and the models of `ANTHROPIC_API_KEY` where that is set.
/// let options = RuntimeOptions::from(config).for_user(&environment);
/// # let _ = options;
/// # Ok::<(), conjure::config::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct RuntimeOptions {
    pub(crate) config: Config,
    /// The data directory that the embedder names, for a configuration that names none.
    pub(crate) data: Option<PathBuf>,
    pub(crate) journal_location: JournalLocation,
    pub(crate) models: ModelRegistry,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) approver: Arc<dyn Approver>,
    /// Replaces the guarded fetch.
    pub(crate) fetch: Option<Arc<dyn Fetch>>,
    /// Replaces the configuration's compaction.
    pub(crate) compaction: Option<Compaction>,
    pub(crate) owner: Option<String>,
    pub(crate) custom_sandboxes: BTreeMap<String, CustomSandbox>,
    pub(crate) sandbox_gate: Option<AdmissionGate>,
    /// Merged over the configuration's pool settings.
    pub(crate) pool: PoolSettings,
    pub(crate) model_gate: Option<AdmissionGate>,
    pub(crate) default_policy: TenantPolicy,
    pub(crate) tenants: BTreeMap<TenantId, TenantPolicy>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The embedder's own connectors to container engines, whose leftovers are removed at the start.
    #[cfg(feature = "docker")]
    pub(crate) extra_engines: Vec<conjure_sandbox::Docker>,
    pub(crate) project: Option<PathBuf>,
    pub(crate) session_options_fn: Arc<dyn Fn(&mut SessionOptions) + Send + Sync>,
    pub(crate) registry: RegistryOptions,
    pub(crate) metrics: MetricsOptions,
    pub(crate) retention: Option<Duration>,
    pub(crate) at_start: AtStart,
    /// The key of vaults as text, instead of the one in the data directory.
    #[cfg(feature = "vaults")]
    pub(crate) vault_key: Option<secrecy::SecretString>,
    #[cfg(feature = "sqlite")]
    pub(crate) journal: SqliteOptions,
}

/// Where sessions are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalLocation {
    /// In the data directory, if there is one.
    OnDisk,
    InMemory,
}

/// What a start does with sessions that have a running turn or a queued input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// They wait until a caller asks for them.
    Nothing,
    Resume,
}

impl From<Config> for RuntimeOptions {
    fn from(config: Config) -> Self {
        Self {
            config,
            data: None,
            journal_location: JournalLocation::OnDisk,
            models: ModelRegistry::default(),
            tools: Vec::new(),
            approver: Arc::new(AllowAll),
            fetch: None,
            compaction: None,
            owner: None,
            custom_sandboxes: BTreeMap::new(),
            sandbox_gate: None,
            pool: PoolSettings::default(),
            model_gate: None,
            default_policy: TenantPolicy::default(),
            tenants: BTreeMap::new(),
            clock: Arc::new(SystemClock),
            #[cfg(feature = "docker")]
            extra_engines: Vec::new(),
            project: None,
            session_options_fn: Arc::new(|_| {}),
            registry: RegistryOptions::default(),
            metrics: MetricsOptions::default(),
            retention: None,
            at_start: AtStart::Nothing,
            #[cfg(feature = "vaults")]
            vault_key: None,
            #[cfg(feature = "sqlite")]
            journal: SqliteOptions::default(),
        }
    }
}

impl RuntimeOptions {
    /// Uses the data directory, the model keys and the vault key of this environment's user.
    ///
    /// The user's data directory applies only if neither the configuration nor [`RuntimeOptions::data`] names one.
    #[must_use]
    pub fn for_user(mut self, environment: &ProcessEnv) -> Self {
        self.data = self.data.or_else(|| environment.data_dir());
        #[cfg(feature = "anthropic")]
        if let Some(key) = environment.api_key() {
            self.models.set_key(key);
        }
        #[cfg(feature = "vaults")]
        {
            self.vault_key = environment.vault_key().or(self.vault_key);
        }
        self.model_keys(environment)
    }

    /// Takes the keys of models from this environment:
    ///
    /// - the keys that `[models.NAME]` names
    /// - the usual keys of vendors (`OPENAI_API_KEY`, `GEMINI_API_KEY`), for models with a name `VENDOR:NAME`
    #[must_use]
    pub fn model_keys(mut self, environment: &ProcessEnv) -> Self {
        self.models.set_environment(environment.clone());
        self
    }

    /// Keeps the data in this directory, unless the configuration names one. Without a data directory everything is
    /// temporary, as with [`RuntimeOptions::ephemeral`].
    #[must_use]
    pub fn data(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data = Some(dir.into());
        self
    }

    /// Keeps sessions in memory. The sessions and their own workspaces end with the process.
    #[must_use]
    pub const fn ephemeral(mut self) -> Self {
        self.journal_location = JournalLocation::InMemory;
        self
    }

    /// Adds a model. The first one is the default, unless [`RuntimeOptions::default_model`] names another.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.models.add(name.into(), Arc::new(model));
        self
    }

    /// Adds the models of the Messages API under this key. They have their own names and the configuration's settings.
    ///
    /// The key is never printed. It is redacted in all that leaves a sandbox.
    #[cfg(feature = "anthropic")]
    #[must_use]
    pub fn anthropic(mut self, key: secrecy::SecretString) -> Self {
        self.models.set_key(key);
        self
    }

    /// Names the model of sessions that name none.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.models.default = Some(name.into());
        self
    }

    /// Offers this tool of the embedder in all sessions.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Reviews tool calls with this approver. Without one, every call is allowed.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Arc::new(approver);
        self
    }

    /// Fetches URLs of artifacts with `fetch`, instead of the guarded fetch of `[artifacts]` in the configuration. An
    /// example is an `HttpFetch` with egress that may dial private addresses.
    ///
    /// `fetch` must separate the tenants itself.
    #[must_use]
    pub fn fetch(mut self, fetch: impl Fetch + 'static) -> Self {
        self.fetch = Some(Arc::new(fetch));
        self
    }

    /// Compacts long histories in this way, instead of as the configuration says (`[compaction]` in its file).
    ///
    /// If the embedder gives a summariser, it writes the summaries instead of the session's own model. A revived
    /// session follows the options of the runtime that revives it.
    ///
    /// ```
    /// use conjure::{Config, RuntimeOptions};
    /// use conjure::conversation::CompactionPolicy;
    ///
    /// let options = RuntimeOptions::from(Config::default()).compaction(CompactionPolicy::with_threshold(150_000));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn compaction(mut self, compaction: impl Into<Compaction>) -> Self {
        self.compaction = Some(compaction.into());
        self
    }

    /// Sets the name of this process in the leases of its sessions. Each process needs its own name, and a new one
    /// after each start. The default is random.
    #[must_use]
    pub fn owner(mut self, name: impl Into<String>) -> Self {
        self.owner = Some(name.into());
        self
    }

    /// Adds the embedder's own connector. Sessions use it if they ask for a sandbox of this name
    /// ([`SessionSpec::sandbox`](crate::SessionSpec::sandbox)).
    #[must_use]
    pub fn connector(mut self, name: impl Into<String>, connector: impl Connector + 'static) -> Self {
        #[cfg(feature = "docker")]
        if let Some(docker) = (&connector as &dyn std::any::Any).downcast_ref::<conjure_sandbox::Docker>() {
            self.extra_engines.push(docker.clone());
        }
        self.custom_sandboxes.insert(name.into(), CustomSandbox::Connector(Arc::new(connector)));
        self
    }

    /// Adds the embedder's own executors. Sessions use them if they ask for a sandbox of this name.
    #[must_use]
    pub fn executor(mut self, name: impl Into<String>, factory: impl ExecutorFactory + 'static) -> Self {
        self.custom_sandboxes.insert(name.into(), CustomSandbox::Factory(Arc::new(factory)));
        self
    }

    /// Admits every sandbox through this gate. The permit is held from before the sandbox's creation until the sandbox
    /// is completely removed. So the gate limits the number of live sandboxes, and serves waiting tenants by their
    /// shares. A sandbox is removed when its session is passivated, or before that if it was unused for
    /// [`ExecutorOptions::unused_after`](conjure_actors::executors::ExecutorOptions::unused_after).
    ///
    /// The gate does not limit what runs in a sandbox. A tenant with as many sandboxes as there are processors can keep
    /// all of them busy. It then slows others down as far as the system's scheduler allows. To prevent that, give a
    /// smaller share, or limit the processors of a sandbox ([`ProcessLimits`](conjure_sandbox::ProcessLimits)).
    /// `benches/fairness.rs` measures both.
    ///
    /// ```
    /// use conjure::{Config, RuntimeOptions, TenantId};
    /// use conjure::runtime::{AdmissionGate, Share};
    ///
    /// let gate = AdmissionGate::new("the sandboxes", 64, Share { admitted: 16, ..Share::default() });
    /// let options = RuntimeOptions::from(Config::default()).sandbox_gate(gate.clone());
    /// // At any time:
    /// gate.set_share(&TenantId::new("acme")?, Some(Share { admitted: 32, ..Share::default() }));
    /// # let _ = options;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sandbox_gate(mut self, gate: AdmissionGate) -> Self {
        self.sandbox_gate = Some(gate);
        self
    }

    /// Creates warm sandboxes. These settings are merged over those of the configuration (`[pool]` in its file).
    ///
    /// ```
    /// use conjure::{Config, RuntimeOptions};
    /// use conjure::config::PoolSettings;
    ///
    /// let options = RuntimeOptions::from(Config::default()).pool(PoolSettings { jail: Some(4), ..PoolSettings::default() });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn pool(mut self, settings: PoolSettings) -> Self {
        self.pool = settings;
        self
    }

    /// Admits every model call through this gate. The permit is held from before the request until the response is
    /// complete.
    #[must_use]
    pub fn model_gate(mut self, gate: AdmissionGate) -> Self {
        self.model_gate = Some(gate);
        self
    }

    /// Sets the policy of this tenant. It replaces the default policy.
    #[must_use]
    pub fn tenant(mut self, tenant: TenantId, policy: TenantPolicy) -> Self {
        self.tenants.insert(tenant, policy);
        self
    }

    /// Sets the default policy. It applies to all tenants without a policy of their own, including unknown ones.
    /// Without it, only the embedder's general limits apply to them. To serve only named tenants, give a policy with
    /// [`TenantPolicy::recorded_sessions`] of 0.
    #[must_use]
    pub fn tenants(mut self, policy: TenantPolicy) -> Self {
        self.default_policy = policy;
        self
    }

    /// Sets the clock that decides to which day a tenant's spending is charged. The default is the machine's clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Adds the skills of this project to the default catalog, if the project is trusted.
    #[must_use]
    pub fn project(mut self, dir: impl Into<PathBuf>) -> Self {
        self.project = Some(dir.into());
        self
    }

    /// Changes the options of sessions. They include how long a session stays live, what happens to a sandbox that no
    /// call uses, and how long a lease lasts.
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
    ///     // The session is passivated; the next message revives it.
    ///     sessions.idle_after = Duration::from_secs(3600);
    /// });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn sessions(mut self, treat: impl Fn(&mut SessionOptions) + Send + Sync + 'static) -> Self {
        self.session_options_fn = Arc::new(treat);
        self
    }

    /// Sets how the registry detects changes of skills.
    #[must_use]
    pub const fn registry(mut self, options: RegistryOptions) -> Self {
        self.registry = options;
        self
    }

    /// Deletes sessions that had no new events for this long, in the background and with their workspaces. Without
    /// this, sessions stay until they are deleted.
    ///
    /// - A session with a live handle is kept, also one that waits for an approval.
    /// - The age is measured by the wall clock, while that advances steadily. After the clock was set, the next run
    ///   deletes nothing.
    #[must_use]
    pub const fn retention(mut self, time: Duration) -> Self {
        self.retention = Some(time);
        self
    }

    /// Resumes the sessions of all tenants that have a running turn or a queued input. This happens in the background
    /// after the start, and is meant for servers. Without it, a session continues when a caller asks for it. See
    /// [`Runtime::resume_unfinished`](crate::Runtime::resume_unfinished).
    #[must_use]
    pub const fn resume_unfinished(mut self) -> Self {
        self.at_start = AtStart::Resume;
        self
    }

    /// Seals the credentials in vaults with this key of 64 hex digits, instead of the key in the data directory's file
    /// `vault.key`.
    ///
    /// An invalid key causes an error when it is first needed. Credentials can be read only with the key that sealed
    /// them.
    #[cfg(feature = "vaults")]
    #[must_use]
    pub fn vault_key(mut self, key: secrecy::SecretString) -> Self {
        self.vault_key = Some(key);
        self
    }

    /// Sets how metrics are reported to the `metrics` facade, if the embedder has installed a recorder before.
    /// [`metrics::names`](conjure_actors::metrics::names) lists them.
    #[must_use]
    pub const fn metrics(mut self, options: MetricsOptions) -> Self {
        self.metrics = options;
        self
    }

    /// Sets the options of the SQLite journal.
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
            .field("record", &self.journal_location)
            .field("models", &self.models)
            .field("sandboxes", &self.custom_sandboxes.keys())
            .finish_non_exhaustive()
    }
}
