//! One layer of settings, and what the layers come to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use conjure_artifact::ArtifactOptions;
use conjure_conversation::CompactionPolicy;
use conjure_sandbox::{DiskLimit, Isolation, Limits, NetworkPolicy};
use conjure_skill::Scope;

use crate::config::artifacts::ArtifactSettings;
use crate::config::compaction::CompactionSettings;
#[cfg(feature = "docker")]
use crate::config::engine::SharedEngine;
use crate::config::environment::Environment;
use crate::config::error::ConfigError;
use crate::config::file;
use crate::config::paths;
use crate::config::pool::PoolSettings;
use crate::config::sandbox::{self, ExecutorKind};
use crate::config::skills::SkillSettings;

/// The longest time that a setting can give, so that arithmetic on it never overflows: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Which form of the Messages API is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ApiProfile {
    /// Version `2023-06-01`, the key in a header of its own. What is known to be live.
    #[default]
    Beta,
    /// Version `2026-10-21`, the key as a bearer token.
    Current,
}

impl FromStr for ApiProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "beta" => Ok(Self::Beta),
            "current" => Ok(Self::Current),
            _ => Err(format!("there is no profile `{text}`; there are `beta` and `current`")),
        }
    }
}

/// One layer of settings: what is `None` is left to the layer below.
///
/// Paths may begin with `~`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Folders of skills, instead of the default scopes; the first wins where names collide.
    pub skill_paths: Option<Vec<PathBuf>>,
    /// Project folders whose own skills may be loaded.
    pub trusted_projects: Option<Vec<PathBuf>>,
    /// Which kind of sandbox runs the tools.
    pub executor: Option<ExecutorKind>,
    /// The image that containers are made of.
    pub image: Option<String>,
    /// The runtime that runs containers, such as `runsc`.
    pub runtime: Option<String>,
    /// As whom commands run in containers, instead of as the workspace's owner.
    pub container_user: Option<String>,
    /// Further folders of the host in containers: `HOST:TARGET`, or `HOST:TARGET:rw` to write them.
    pub volumes: Option<Vec<String>>,
    /// Where the container engine listens: `unix:///path/to/socket`, `tcp://host:port`.
    pub engine: Option<String>,
    /// How long one tool call may take.
    pub tool_timeout: Option<Duration>,
    /// How often the model may be called for one message.
    pub max_iterations: Option<u32>,
    /// What a sandbox may reach of the network.
    pub network: Option<NetworkPolicy>,
    /// Folders that tools may read and write beside the workspace.
    pub allowed_paths: Option<Vec<PathBuf>>,
    /// Where sandboxes have their folders, and the store of what they read.
    pub data: Option<PathBuf>,
    /// Bytes of memory for all that runs in a sandbox together. A machine that cannot limit them is then an error.
    pub memory: Option<u64>,
    /// How many processors a sandbox may keep busy. A machine that cannot limit them is then an error.
    pub cpus: Option<f64>,
    /// Who keeps the workspace within its limit of the disk. A machine on which the kernel cannot is an error where that is asked.
    pub disk_limit: Option<DiskLimit>,
    /// What a sandbox must enforce. No layer takes away what a lower one demands.
    pub floor: Option<Isolation>,
    /// Where the model's service is.
    pub base_url: Option<String>,
    /// Which form of its interface is spoken.
    pub profile: Option<ApiProfile>,
    /// How many tokens one answer of the model may have.
    pub max_tokens: Option<u32>,
    /// How long one model call may take, its retries included.
    pub model_timeout: Option<Duration>,
    /// Sandboxes that are made before a session needs them; each of its settings is laid over the lower layer's.
    pub pool: Option<PoolSettings>,
    /// When long conversations are compacted; each of its settings is laid over the lower layer's.
    pub compaction: Option<CompactionSettings>,
    /// How sessions use their skills; each of its settings is laid over the lower layer's.
    pub skills: Option<SkillSettings>,
    /// What sessions may be given; each of its settings is laid over the lower layer's.
    pub artifacts: Option<ArtifactSettings>,
}

impl Settings {
    /// This layer laid over `lower`.
    #[must_use]
    pub fn over(self, lower: Self) -> Self {
        Self {
            skill_paths: self.skill_paths.or(lower.skill_paths),
            trusted_projects: self.trusted_projects.or(lower.trusted_projects),
            executor: self.executor.or(lower.executor),
            image: self.image.or(lower.image),
            runtime: self.runtime.or(lower.runtime),
            container_user: self.container_user.or(lower.container_user),
            volumes: self.volumes.or(lower.volumes),
            engine: self.engine.or(lower.engine),
            tool_timeout: self.tool_timeout.or(lower.tool_timeout),
            max_iterations: self.max_iterations.or(lower.max_iterations),
            network: self.network.or(lower.network),
            allowed_paths: self.allowed_paths.or(lower.allowed_paths),
            data: self.data.or(lower.data),
            memory: self.memory.or(lower.memory),
            cpus: self.cpus.or(lower.cpus),
            disk_limit: self.disk_limit.or(lower.disk_limit),
            floor: match (self.floor, lower.floor) {
                (Some(upper), Some(lower)) => Some(upper.or(&lower)),
                (one, other) => one.or(other),
            },
            base_url: self.base_url.or(lower.base_url),
            profile: self.profile.or(lower.profile),
            max_tokens: self.max_tokens.or(lower.max_tokens),
            model_timeout: self.model_timeout.or(lower.model_timeout),
            pool: match (self.pool, lower.pool) {
                (Some(upper), Some(lower)) => Some(upper.over(lower)),
                (one, other) => one.or(other),
            },
            compaction: match (self.compaction, lower.compaction) {
                (Some(upper), Some(lower)) => Some(upper.over(lower)),
                (one, other) => one.or(other),
            },
            skills: match (self.skills, lower.skills) {
                (Some(upper), Some(lower)) => Some(upper.over(lower)),
                (one, other) => one.or(other),
            },
            artifacts: match (self.artifacts, lower.artifacts) {
                (Some(upper), Some(lower)) => Some(upper.over(lower)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// The settings that are in force (specification 13).
///
/// ```
/// use std::time::Duration;
/// use conjure::{Config, Environment, Settings};
///
/// // What the host's code says wins over the environment, and that over the file.
/// let environment = Environment::from_pairs([("CONJURE_MAX_ITERATIONS", "10"), ("CONJURE_TOOL_TIMEOUT", "5")]);
/// let code = Settings { tool_timeout: Some(Duration::from_secs(60)), ..Settings::default() };
/// let config = Config::layered(code, &environment, None)?;
/// assert_eq!((config.tool_timeout(), config.max_iterations()), (Duration::from_secs(60), 10));
///
/// // A session or a call lays its own over it.
/// let short = config.with(Settings { max_iterations: Some(3), ..Settings::default() })?;
/// assert_eq!(short.max_iterations(), 3);
/// # Ok::<(), conjure::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    settings: Settings,
    home: Option<PathBuf>,
    /// What commands of an unisolated sandbox need of the host's environment.
    handed_on: BTreeMap<OsString, OsString>,
    /// Where container engines of the user listen.
    runtime_folder: Option<PathBuf>,
    skill_paths: Option<Vec<PathBuf>>,
    trusted_projects: Vec<PathBuf>,
    tool_timeout: Duration,
    max_iterations: u32,
    network: NetworkPolicy,
    allowed_paths: Vec<PathBuf>,
    data: Option<PathBuf>,
    limits: Limits,
    floor: Isolation,
    #[cfg(feature = "docker")]
    engine: SharedEngine,
}

impl Config {
    /// The configuration of this process: the file (the one that `CONJURE_CONFIG` names, else
    /// `~/.conjure/config.toml` where it exists) and the environment.
    ///
    /// # Errors
    /// When the file or a variable cannot be used.
    pub fn load() -> Result<Self, ConfigError> {
        let environment = Environment::of_process();
        let file = Self::default_file(&environment);
        Self::layered(Settings::default(), &environment, file.as_deref())
    }

    /// The configuration of `code` over `environment` over the file at `file` over the defaults.
    ///
    /// # Errors
    /// When the file, a variable or a setting cannot be used.
    pub fn layered(
        code: Settings,
        environment: &Environment,
        file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let file = file.map(file::read).transpose()?.unwrap_or_default();
        let settings = code.over(environment.settings()?).over(file);
        let config = Self::resolve(settings, environment.home(), environment.handed_on().clone())?;
        Ok(Self { runtime_folder: environment.runtime_folder(), ..config })
    }

    /// The file that is read when the host names none: the one of `CONJURE_CONFIG`, which must exist, else
    /// `~/.conjure/config.toml` where it exists.
    #[must_use]
    pub fn default_file(environment: &Environment) -> Option<PathBuf> {
        let usual = || environment.home().map(|home| home.join(".conjure/config.toml"));
        environment.config_file().or_else(|| usual().filter(|path| path.exists()))
    }

    /// These settings with `overrides` laid over them, for one session or one call.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn with(&self, overrides: Settings) -> Result<Self, ConfigError> {
        let settings = overrides.over(self.settings.clone());
        let config = Self::resolve(settings, self.home.clone(), self.handed_on.clone())?;
        let config = Self { runtime_folder: self.runtime_folder.clone(), ..config };
        #[cfg(feature = "docker")]
        if config.settings.engine == self.settings.engine {
            return Ok(Self { engine: self.engine.clone(), ..config });
        }
        Ok(config)
    }

    /// The same settings, for sandboxes whose commands see this environment's `PATH`, `HOME`, language and time zone.
    #[must_use]
    pub fn in_environment(mut self, environment: &Environment) -> Self {
        #[cfg(feature = "docker")]
        if self.runtime_folder != environment.runtime_folder() {
            self.engine = SharedEngine::default();
        }
        self.runtime_folder = environment.runtime_folder();
        self.handed_on = environment.handed_on().clone();
        self
    }

    fn resolve(
        settings: Settings,
        home: Option<PathBuf>,
        handed_on: BTreeMap<OsString, OsString>,
    ) -> Result<Self, ConfigError> {
        let expand = |key: &'static str, list: Option<&Vec<PathBuf>>| {
            list.map(|list| {
                let expanded: Result<Vec<_>, _> =
                    list.iter().map(|path| paths::expand(path, home.as_deref())).collect();
                expanded.map_err(|reason| ConfigError::Setting { key, reason })
            })
            .transpose()
        };
        let within = |key: &'static str, fits: bool, rule: &str| {
            if fits { Ok(()) } else { Err(ConfigError::Setting { key, reason: rule.to_owned() }) }
        };
        let is_time = |time: Duration| !time.is_zero() && time <= LONGEST;
        let tool_timeout = settings.tool_timeout.unwrap_or(Duration::from_secs(30));
        within("tool_timeout", is_time(tool_timeout), "it must be more than 0 seconds and at most a year")?;
        within(
            "model_timeout",
            settings.model_timeout.is_none_or(is_time),
            "it must be more than 0 seconds and at most a year",
        )?;
        let pool = settings.pool.unwrap_or_default();
        pool.check().map_err(|reason| ConfigError::Setting { key: "pool", reason })?;
        let compaction = settings.compaction.unwrap_or_default();
        compaction.check().map_err(|reason| ConfigError::Setting { key: "compaction", reason })?;
        if let Some(skills) = &settings.skills {
            skills.check().map_err(|reason| ConfigError::Setting { key: "skills", reason })?;
        }
        if let Some(artifacts) = &settings.artifacts {
            artifacts
                .check(home.as_deref())
                .map_err(|reason| ConfigError::Setting { key: "artifacts", reason })?;
        }
        within("max_tokens", settings.max_tokens != Some(0), "it must be at least 1")?;
        let max_iterations = settings.max_iterations.unwrap_or(25);
        within("max_iterations", max_iterations > 0, "it must be at least 1")?;
        let floor = settings.floor.unwrap_or(Isolation::NONE);
        let (limits, floor) = sandbox::limits(settings.memory, settings.cpus, floor)
            .map_err(|(key, reason)| ConfigError::Setting { key, reason })?;
        let limits = limits.with_disk_limit(settings.disk_limit.unwrap_or_default());
        Ok(Self {
            skill_paths: expand("skill_paths", settings.skill_paths.as_ref())?,
            trusted_projects: expand("trusted_projects", settings.trusted_projects.as_ref())?
                .unwrap_or_default(),
            allowed_paths: expand("allowed_paths", settings.allowed_paths.as_ref())?.unwrap_or_default(),
            data: settings
                .data
                .as_deref()
                .map(|path| paths::expand(path, home.as_deref()))
                .transpose()
                .map_err(|reason| ConfigError::Setting { key: "data", reason })?,
            tool_timeout,
            max_iterations,
            network: settings.network.clone().unwrap_or_default(),
            limits,
            floor,
            home,
            handed_on,
            runtime_folder: None,
            settings,
            #[cfg(feature = "docker")]
            engine: SharedEngine::default(),
        })
    }

    /// Where skills are looked for, the scope that wins first: the folders that were configured, else the scopes of
    /// the format's guide for a program that runs in `project`. A project's own are among them, and marked as what
    /// they are: nothing of an untrusted scope is loaded, but that it is there is told.
    #[must_use]
    pub fn skill_scopes(&self, project: Option<&Path>) -> Vec<Scope> {
        match &self.skill_paths {
            Some(configured) => configured.iter().map(Scope::named).collect(),
            None => paths::scopes(project, &self.trusted_projects, self.home.as_deref()),
        }
    }

    /// Which kind of sandbox runs the tools.
    #[must_use]
    pub fn executor(&self) -> ExecutorKind {
        self.settings.executor.unwrap_or_default()
    }

    /// What containers are made of, as far as it is configured (specification 5.8).
    ///
    /// # Errors
    /// When a volume or the engine's address cannot be understood.
    #[cfg(feature = "docker")]
    pub fn docker(&self) -> Result<conjure_sandbox::DockerOptions, ConfigError> {
        use conjure_sandbox::{DockerOptions, EngineAddress};

        let wrong = |key| move |reason| ConfigError::Setting { key, reason };
        let defaults = DockerOptions::default();
        let volumes =
            self.settings.volumes.iter().flatten().map(|text| text.parse()).collect::<Result<_, _>>();
        let engine =
            EngineAddress::candidates(self.settings.engine.as_deref(), self.runtime_folder.as_deref());
        Ok(DockerOptions {
            engine: engine.map_err(wrong("engine"))?,
            image: self.settings.image.clone().unwrap_or(defaults.image),
            user: self.settings.container_user.clone(),
            runtime: self.settings.runtime.clone(),
            volumes: volumes.map_err(wrong("volumes"))?,
            ..DockerOptions::default()
        })
    }

    /// The container engine, which all sessions have in common that are configured by this, by clones of it, and by what
    /// was laid over it ([`Config::with`]), unless that names another engine. So a host looks for it once, and all its
    /// sessions together start no more containers at a time than are good for the machine.
    ///
    /// # Errors
    /// When the engine's address cannot be understood.
    #[cfg(feature = "docker")]
    pub fn container_engine(&self) -> Result<conjure_sandbox::ContainerEngine, ConfigError> {
        let addresses = self.docker()?.engine;
        Ok(self.engine.at(addresses))
    }

    /// What commands of an unisolated sandbox need of the host's environment.
    pub(crate) const fn handed_on(&self) -> &BTreeMap<OsString, OsString> {
        &self.handed_on
    }

    /// How long one tool call may take: 30 seconds, unless configured.
    #[must_use]
    pub const fn tool_timeout(&self) -> Duration {
        self.tool_timeout
    }

    /// How often the model may be called for one message: 25 times, unless configured.
    #[must_use]
    pub const fn max_iterations(&self) -> u32 {
        self.max_iterations
    }

    /// What a sandbox may reach of the network: nothing, unless configured.
    #[must_use]
    pub const fn network(&self) -> &NetworkPolicy {
        &self.network
    }

    /// Folders that tools may read and write beside the workspace: none, unless configured.
    #[must_use]
    pub fn allowed_paths(&self) -> &[PathBuf] {
        &self.allowed_paths
    }

    /// Where sandboxes have their folders, and the store of what they read, where that was configured. Else each session
    /// has a temporary folder; the command has one in the user's home.
    #[must_use]
    pub fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// What a sandbox may use.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What a sandbox must enforce: what was demanded, and the limits that were set.
    #[must_use]
    pub const fn floor(&self) -> &Isolation {
        &self.floor
    }

    /// Where the model's service is, where that was configured.
    #[must_use]
    pub fn base_url(&self) -> Option<&str> {
        self.settings.base_url.as_deref()
    }

    /// Which form of the service's interface is spoken.
    #[must_use]
    pub fn profile(&self) -> ApiProfile {
        self.settings.profile.unwrap_or_default()
    }

    /// How many tokens one answer may have, where that was configured.
    #[must_use]
    pub const fn max_tokens(&self) -> Option<u32> {
        self.settings.max_tokens
    }

    /// Sandboxes that are made before a session needs them, as far as that was configured: none else.
    #[must_use]
    pub fn pool(&self) -> PoolSettings {
        self.settings.pool.unwrap_or_default()
    }

    /// From how many tokens of input on the model's service is asked to compact by itself; never, unless that was configured.
    #[must_use]
    pub fn service_compaction(&self) -> Option<NonZeroU64> {
        self.settings.compaction.unwrap_or_default().of_service()
    }

    /// When the beginning of a long conversation is replaced by a summary; never, unless that was configured.
    #[must_use]
    pub fn compaction(&self) -> Option<CompactionPolicy> {
        self.settings.compaction.unwrap_or_default().policy()
    }

    /// How sessions use their skills, as far as that was configured.
    #[must_use]
    pub fn skills(&self) -> SkillSettings {
        self.settings.skills.clone().unwrap_or_default()
    }

    /// What sessions may be given, and what a fetch may cost; none where they have no artifacts.
    #[must_use]
    pub fn artifacts(&self) -> Option<ArtifactOptions> {
        self.settings.artifacts.clone().unwrap_or_default().options(self.home.as_deref())
    }

    /// How long one model call may take, its retries included, where that was configured.
    #[must_use]
    pub const fn model_timeout(&self) -> Option<Duration> {
        self.settings.model_timeout
    }
}

impl Default for Config {
    /// The defaults of the specification, for a process of which nothing is known.
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            home: None,
            handed_on: BTreeMap::new(),
            runtime_folder: None,
            skill_paths: None,
            trusted_projects: Vec::new(),
            tool_timeout: Duration::from_secs(30),
            max_iterations: 25,
            network: NetworkPolicy::None,
            allowed_paths: Vec::new(),
            data: None,
            limits: Limits::default(),
            floor: Isolation::NONE,
            #[cfg(feature = "docker")]
            engine: SharedEngine::default(),
        }
    }
}

/// A number of seconds from a file or a variable.
pub(crate) fn parse_seconds(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= LONGEST)
        .ok_or_else(|| format!("{seconds} is not a number of seconds between 0 and a year"))
}
