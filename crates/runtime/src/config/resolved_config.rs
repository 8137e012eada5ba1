//! The effective configuration: the layers of settings, merged and checked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_artifact::ArtifactOptions;
use conjure_conversation::CompactionPolicy;
use conjure_egress::AddressPolicy;
use conjure_mcp::McpServerSpec;
use conjure_sandbox::{Isolation, Limits, NetworkPolicy};
use conjure_skill::Scope;

use crate::config::error::ConfigError;
use crate::config::file;
use crate::config::paths;
use crate::config::process_env::ProcessEnv;
use crate::config::sections::models::ModelSettings;
use crate::config::sections::pool::PoolSettings;
#[cfg(feature = "docker")]
use crate::config::sections::sandbox::SharedEngine;
use crate::config::sections::sandbox::{self, ExecutorKind};
use crate::config::sections::serve::ServeSettings;
use crate::config::sections::skills::SkillSettings;
use crate::config::settings::{ApiProfile, Settings};

/// The effective settings (specification 13).
///
/// ```
/// use std::time::Duration;
/// use conjure::{Config, ProcessEnv, Settings};
///
/// // The embedder's settings win over the environment, and the environment over the file.
/// let environment = ProcessEnv::from_pairs([("CONJURE_MAX_ITERATIONS", "10"), ("CONJURE_TOOL_TIMEOUT", "5")]);
/// let code = Settings { tool_timeout: Some(Duration::from_secs(60)), ..Settings::default() };
/// let config = Config::from_layers(code, &environment, None)?;
/// assert_eq!((config.tool_timeout(), config.max_iterations()), (Duration::from_secs(60), 10));
///
/// // A session or a call lays its own over it.
/// let short = config.with(Settings { max_iterations: Some(3), ..Settings::default() })?;
/// assert_eq!(short.max_iterations(), 3);
/// # Ok::<(), conjure::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The merged layers. A leading `~` in a path is expanded.
    settings: Settings,
    home: Option<PathBuf>,
    /// The variables of this process that commands in an unisolated sandbox need.
    passthrough_env: BTreeMap<OsString, OsString>,
    /// The directory where the user's container engines have their sockets.
    runtime_dir: Option<PathBuf>,
    limits: Limits,
    floor: Isolation,
    #[cfg(feature = "docker")]
    engine: SharedEngine,
}

impl Config {
    /// Loads the configuration of this process. It merges the environment over the file. The file is the one that
    /// `CONJURE_CONFIG` names, else `~/.conjure/config.toml` if that exists.
    ///
    /// # Errors
    ///
    /// If the file or a variable cannot be used.
    pub fn load() -> Result<Self, ConfigError> {
        let environment = ProcessEnv::from_process();
        let file = Self::default_file(&environment);
        Self::from_layers(Settings::default(), &environment, file.as_deref())
    }

    /// Merges `code` over `environment` over the file at `file` over the defaults.
    ///
    /// # Errors
    ///
    /// If the file, a variable or a setting cannot be used.
    pub fn from_layers(
        code: Settings,
        environment: &ProcessEnv,
        file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let mut file = file.map(file::read).transpose()?.unwrap_or_default();
        let lookup = |name: &str| environment.named(name);
        file.mcp =
            file.mcp.into_iter().map(|(name, server)| (name, server.with_variables(&lookup))).collect();
        let settings = code.merged_over(environment.settings()?).merged_over(file);
        let config = Self::resolve(settings, environment.home(), environment.passthrough().clone())?;
        Ok(Self { runtime_dir: environment.runtime_dir(), ..config })
    }

    /// The default configuration file: the one that `CONJURE_CONFIG` names, which must exist, else
    /// `~/.conjure/config.toml` if it exists.
    #[must_use]
    pub fn default_file(environment: &ProcessEnv) -> Option<PathBuf> {
        let usual = || environment.home().map(|home| home.join(".conjure/config.toml"));
        environment.config_file().or_else(|| usual().filter(|path| path.exists()))
    }

    /// A copy with `overrides` merged over these settings, for one session or one call.
    ///
    /// # Errors
    ///
    /// If a setting cannot be used.
    pub fn with(&self, overrides: Settings) -> Result<Self, ConfigError> {
        let settings = overrides.merged_over(self.settings.clone());
        let config = Self::resolve(settings, self.home.clone(), self.passthrough_env.clone())?;
        let config = Self { runtime_dir: self.runtime_dir.clone(), ..config };
        #[cfg(feature = "docker")]
        if config.settings.engine == self.settings.engine {
            return Ok(Self { engine: self.engine.clone(), ..config });
        }
        Ok(config)
    }

    /// The same settings, with the `PATH`, `HOME`, language and time zone of this environment for commands.
    #[must_use]
    pub fn with_process_env(mut self, environment: &ProcessEnv) -> Self {
        #[cfg(feature = "docker")]
        if self.runtime_dir != environment.runtime_dir() {
            self.engine = SharedEngine::default();
        }
        self.runtime_dir = environment.runtime_dir();
        self.passthrough_env = environment.passthrough().clone();
        self
    }

    fn resolve(
        mut settings: Settings,
        home: Option<PathBuf>,
        passthrough_env: BTreeMap<OsString, OsString>,
    ) -> Result<Self, ConfigError> {
        let wrong = |(key, reason)| ConfigError::Setting { key, reason };
        for (key, path) in settings.paths_mut() {
            *path = paths::expand(path, home.as_deref()).map_err(|reason| wrong((key, reason)))?;
        }
        settings.check().map_err(wrong)?;
        let floor = settings.floor.unwrap_or(Isolation::NONE);
        let (limits, floor) = sandbox::limits(settings.memory, settings.cpus, floor).map_err(wrong)?;
        let limits = limits.with_disk_limit(settings.disk_limit.unwrap_or_default());
        Ok(Self { settings, home, passthrough_env, limits, floor, ..Self::default() })
    }

    /// The scopes of skills, in order of precedence. They are the configured directories, else the default scopes of the
    /// format's guide for a program that runs in `project`.
    ///
    /// The project's own scopes are included and marked. From an untrusted scope no skill is loaded, but a diagnostic
    /// reports it.
    #[must_use]
    pub fn skill_scopes(&self, project: Option<&Path>) -> Vec<Scope> {
        match &self.settings.skill_paths {
            Some(configured) => configured.iter().map(Scope::named).collect(),
            None => paths::scopes(project, self.trusted_projects(), self.home.as_deref()),
        }
    }

    fn trusted_projects(&self) -> &[PathBuf] {
        self.settings.trusted_projects.as_deref().unwrap_or_default()
    }

    /// The kind of sandbox that runs the tools.
    #[must_use]
    pub fn executor(&self) -> ExecutorKind {
        self.settings.executor.unwrap_or_default()
    }

    /// The options of containers, as configured (specification 5.8).
    ///
    /// # Errors
    ///
    /// If a volume or the engine's address cannot be parsed.
    #[cfg(feature = "docker")]
    pub fn docker(&self) -> Result<conjure_sandbox::DockerOptions, ConfigError> {
        use conjure_sandbox::{DockerOptions, EngineAddress};

        let wrong = |key| move |reason| ConfigError::Setting { key, reason };
        let defaults = DockerOptions::default();
        let volumes =
            self.settings.volumes.iter().flatten().map(|text| text.parse()).collect::<Result<_, _>>();
        let engine = EngineAddress::candidates(self.settings.engine.as_deref(), self.runtime_dir.as_deref());
        Ok(DockerOptions {
            engine: engine.map_err(wrong("engine"))?,
            image: self.settings.image.clone().unwrap_or(defaults.image),
            user: self.settings.container_user.clone(),
            runtime: self.settings.runtime.clone(),
            volumes: volumes.map_err(wrong("volumes"))?,
            ..DockerOptions::default()
        })
    }

    /// The container engine. The engine is detected once, and the limit of concurrent container starts holds over all
    /// sessions.
    ///
    /// For this, all clones of this configuration share it. So do configurations that [`Config::with`] derives without
    /// another engine.
    ///
    /// # Errors
    ///
    /// If the engine's address cannot be parsed.
    #[cfg(feature = "docker")]
    pub fn container_engine(&self) -> Result<conjure_sandbox::ContainerEngine, ConfigError> {
        let addresses = self.docker()?.engine;
        Ok(self.engine.get_or_create(addresses))
    }

    /// The variables of this process that commands in an unisolated sandbox need.
    pub(crate) const fn passthrough_env(&self) -> &BTreeMap<OsString, OsString> {
        &self.passthrough_env
    }

    /// The timeout of a tool call. Default: 30 seconds.
    #[must_use]
    pub fn tool_timeout(&self) -> Duration {
        self.settings.tool_timeout.unwrap_or(Duration::from_secs(30))
    }

    /// The most model calls for one message. Default: 25.
    #[must_use]
    pub fn max_iterations(&self) -> u32 {
        self.settings.max_iterations.unwrap_or(25)
    }

    /// Which hosts a sandbox may reach. Default: none.
    #[must_use]
    pub fn network(&self) -> &NetworkPolicy {
        self.settings.network.as_ref().unwrap_or(&NetworkPolicy::None)
    }

    /// Which addresses sandboxes may reach, at hosts that their network policy permits. Default: public ones.
    #[must_use]
    pub fn address_policy(&self) -> AddressPolicy {
        let more = self.settings.private_addresses.iter().flatten().copied();
        AddressPolicy::public_only().with_allowed(more)
    }

    /// Directories that tools may read and write, in addition to the workspace. Default: none.
    #[must_use]
    pub fn allowed_paths(&self) -> &[PathBuf] {
        self.settings.allowed_paths.as_deref().unwrap_or_default()
    }

    /// The data directory, if it is configured. Otherwise each session has a temporary directory, and the command `conjure`
    /// uses a directory in the user's home.
    #[must_use]
    pub fn data(&self) -> Option<&Path> {
        self.settings.data.as_deref()
    }

    /// The resource limits of a sandbox.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What a sandbox must enforce: the required boundaries, and the boundaries of the limits that are set.
    #[must_use]
    pub const fn floor(&self) -> &Isolation {
        &self.floor
    }

    /// The model of sessions that name none, if it is configured.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.settings.model.as_deref()
    }

    /// The configured models by name.
    #[must_use]
    pub const fn models(&self) -> &BTreeMap<String, ModelSettings> {
        &self.settings.models
    }

    /// The address of the Messages API, if it is configured.
    #[must_use]
    pub fn base_url(&self) -> Option<&str> {
        self.settings.base_url.as_deref()
    }

    /// The version of the Messages API.
    #[must_use]
    pub fn profile(&self) -> ApiProfile {
        self.settings.profile.unwrap_or_default()
    }

    /// The token limit of a response, if it is configured.
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u32> {
        self.settings.max_tokens
    }

    /// The warm pools. Default: none.
    #[must_use]
    pub fn pool(&self) -> PoolSettings {
        self.settings.pool.unwrap_or_default()
    }

    /// The input size in tokens from which the model's service compacts by itself. Default: never.
    #[must_use]
    pub fn service_compaction(&self) -> Option<NonZeroU64> {
        self.settings.compaction.unwrap_or_default().service_compaction()
    }

    /// When the beginning of a long conversation is replaced by a summary. By default, when it nearly fills the model's
    /// context, if the size of the context is known.
    #[must_use]
    pub fn compaction(&self) -> Option<CompactionPolicy> {
        self.settings.compaction.unwrap_or_default().policy()
    }

    /// How sessions use their skills.
    #[must_use]
    pub fn skills(&self) -> SkillSettings {
        self.settings.skills.clone().unwrap_or_default()
    }

    /// The options of artifacts; `None` if sessions have no artifacts.
    #[must_use]
    pub fn artifacts(&self) -> Option<ArtifactOptions> {
        self.settings.artifacts.clone().unwrap_or_default().options()
    }

    /// The user's home directory.
    #[cfg(feature = "mcp")]
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Whether this project is a trusted one, or lies inside of one.
    #[must_use]
    pub fn is_trusted_project(&self, project: &Path) -> bool {
        paths::is_trusted(project, self.trusted_projects())
    }

    /// The MCP servers, by name.
    #[must_use]
    pub const fn mcp_servers(&self) -> &BTreeMap<String, McpServerSpec> {
        &self.settings.mcp
    }

    /// What clients of the server may name.
    #[must_use]
    pub fn serve(&self) -> ServeSettings {
        self.settings.serve.clone()
    }

    /// The timeout of a model call including its retries, if it is configured.
    #[must_use]
    pub const fn model_timeout(&self) -> Option<Duration> {
        self.settings.model_timeout
    }
}

impl Default for Config {
    /// The defaults of the specification. Does not read the environment.
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            home: None,
            passthrough_env: BTreeMap::new(),
            runtime_dir: None,
            limits: Limits::default(),
            floor: Isolation::NONE,
            #[cfg(feature = "docker")]
            engine: SharedEngine::default(),
        }
    }
}
