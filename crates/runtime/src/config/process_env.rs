//! Every environment variable that Conjure knows, and the only place that reads the environment.
//!
//! [`ProcessEnv`] is a snapshot: it is taken once, when a program starts, and passed on as a value. So no library
//! call depends on what another thread does to the environment, and tests use their own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::sandbox::{
    ExecutorKind, parse_cpus, parse_disk_limit, parse_floor, parse_network, parse_range, parse_size,
};
use crate::config::settings::{ApiProfile, Settings, parse_seconds};

/// One environment variable: its name and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

const fn variable(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, meaning }
}

const CONFIG: Variable =
    variable("CONJURE_CONFIG", "The configuration file, instead of `~/.conjure/config.toml`; it must exist.");
const SKILL_PATHS: Variable = variable(
    "CONJURE_SKILL_PATHS",
    "Folders of skills, separated by `:`; the first wins. Replaces the default scopes.",
);
const TRUSTED_PROJECTS: Variable = variable(
    "CONJURE_TRUSTED_PROJECTS",
    "Project folders, separated by `:`, whose `.agents/skills` and `.claude/skills` may be loaded.",
);
const EXECUTOR: Variable =
    variable("CONJURE_EXECUTOR", "The kind of sandbox: `jail` (the default), `docker` or `local`.");
const IMAGE: Variable =
    variable("CONJURE_IMAGE", "The image of containers, instead of `conjure/sandbox:latest`.");
const RUNTIME: Variable =
    variable("CONJURE_RUNTIME", "The runtime of containers, such as `runsc`, instead of the engine's own.");
const CONTAINER_USER: Variable = variable(
    "CONJURE_CONTAINER_USER",
    "As whom commands run in containers, `USER:GROUP`, instead of as the workspace's owner.",
);
const VOLUMES: Variable = variable(
    "CONJURE_VOLUMES",
    "More folders in containers, separated by `,`: `HOST:TARGET`, or `HOST:TARGET:rw` to write.",
);
const TOOL_TIMEOUT: Variable =
    variable("CONJURE_TOOL_TIMEOUT", "How long one tool call may take, in seconds: `30`, `0.5`.");
const MAX_ITERATIONS: Variable =
    variable("CONJURE_MAX_ITERATIONS", "How often the model may be called for one message: `25`.");
const NETWORK: Variable =
    variable("CONJURE_NETWORK", "What a sandbox may reach: `none`, `full`, or host names separated by `,`.");
const PRIVATE_ADDRESSES: Variable = variable(
    "CONJURE_PRIVATE_ADDRESSES",
    "Private addresses that sandboxes may reach, by hosts that their network permits, separated by `,`: `10.1.0.0/16`.",
);
const ALLOWED_PATHS: Variable = variable(
    "CONJURE_ALLOWED_PATHS",
    "Folders that tools may read and write beside the workspace, separated by `:`.",
);
const DATA: Variable = variable(
    "CONJURE_DATA",
    "Where sandboxes have their folders, and what they read: instead of `conjure` in `XDG_DATA_HOME`.",
);
const MEMORY: Variable =
    variable("CONJURE_MEMORY", "How much memory a sandbox may use: `512m`, `2g`. It must be enforced, then.");
const CPUS: Variable = variable(
    "CONJURE_CPUS",
    "How many processors a sandbox may keep busy: `0.5`. It must be enforced, then.",
);
const DISK_LIMIT: Variable = variable(
    "CONJURE_DISK_LIMIT",
    "Who keeps workspaces within their limit of the disk: `watched` (the default), or `kernel`, for jails of root.",
);
const REQUIRE: Variable = variable(
    "CONJURE_REQUIRE",
    "What a sandbox must enforce, separated by `,`: `filesystem`, `network`, `memory` and others, or `all`.",
);
const PROFILE: Variable = variable(
    "CONJURE_PROFILE",
    "Which form of the Messages API is spoken: `beta` (the default) or `current`.",
);
const MAX_TOKENS: Variable =
    variable("CONJURE_MAX_TOKENS", "How many tokens one answer of the model may have: `8192`.");
const MODEL_TIMEOUT: Variable = variable(
    "CONJURE_MODEL_TIMEOUT",
    "How long one model call may take, its retries included, in seconds: `600`.",
);
const ARTIFACTS: Variable = variable(
    "CONJURE_ARTIFACTS",
    "What sessions may be given: `on` (the default), `files` without URLs that are fetched, or `off`.",
);
const LOG: Variable = variable(
    "CONJURE_LOG",
    "What the command logs to standard error, as a filter: `info`, `conjure_sandbox=debug`. Off by default.",
);
const HOME: Variable = variable("HOME", "The folder that `~` stands for.");
const NO_COLOR: Variable = variable("NO_COLOR", "When set and not empty, the command writes no colours.");
const TERM: Variable = variable("TERM", "`dumb` means a terminal without colours.");
const API_KEY: Variable =
    variable("ANTHROPIC_API_KEY", "The key for models of the Messages API. It is never printed.");
const BASE_URL: Variable =
    variable("ANTHROPIC_BASE_URL", "Where the Messages API is, instead of `https://api.anthropic.com`.");
const MODEL: Variable =
    variable("CONJURE_MODEL", "The model of sessions that name none: a configured name, or `VENDOR:NAME`.");
const OPENAI_KEY: Variable =
    variable("OPENAI_API_KEY", "The key for models `openai:NAME`. It is never printed.");
const OPENAI_URL: Variable = variable(
    "OPENAI_BASE_URL",
    "Where models `openai:NAME` are, instead of `https://api.openai.com/v1`; another host speaks Chat Completions.",
);
const GEMINI_KEY: Variable =
    variable("GEMINI_API_KEY", "The key for models `gemini:NAME`. It is never printed.");
const OLLAMA_HOST: Variable =
    variable("OLLAMA_HOST", "Where models `ollama:NAME` are, instead of `127.0.0.1:11434`.");
const VAULT_KEY: Variable = variable(
    "CONJURE_VAULT_KEY",
    "The key that seals the credentials in vaults, 64 hex digits, instead of the one in `vault.key` in the data folder. It is never printed.",
);
const DOCKER_HOST: Variable = variable(
    "DOCKER_HOST",
    "Where the container engine listens: `unix:///run/docker.sock`, `tcp://host:2375`.",
);
const DATA_HOME: Variable =
    variable("XDG_DATA_HOME", "Where programs keep their data, instead of `~/.local/share`.");
const NOTIFY_SOCKET: Variable = variable(
    "NOTIFY_SOCKET",
    "Where systemd listens, which `conjure serve` tells that it is ready. systemd sets it.",
);
const RUNTIME_DIR: Variable =
    variable("XDG_RUNTIME_DIR", "Where the sockets of a rootless Docker or Podman are looked for.");

/// Every variable that Conjure reads, with its meaning, in the order in which they are documented.
pub const VARIABLES: &[Variable] = &[
    CONFIG,
    SKILL_PATHS,
    TRUSTED_PROJECTS,
    EXECUTOR,
    IMAGE,
    RUNTIME,
    CONTAINER_USER,
    VOLUMES,
    TOOL_TIMEOUT,
    MAX_ITERATIONS,
    NETWORK,
    PRIVATE_ADDRESSES,
    ALLOWED_PATHS,
    DATA,
    MEMORY,
    CPUS,
    DISK_LIMIT,
    REQUIRE,
    MODEL,
    PROFILE,
    MAX_TOKENS,
    MODEL_TIMEOUT,
    ARTIFACTS,
    LOG,
    HOME,
    NO_COLOR,
    TERM,
    API_KEY,
    BASE_URL,
    OPENAI_KEY,
    OPENAI_URL,
    GEMINI_KEY,
    OLLAMA_HOST,
    VAULT_KEY,
    DOCKER_HOST,
    DATA_HOME,
    RUNTIME_DIR,
    NOTIFY_SOCKET,
];

/// The variables of the keys of model services that need no configuration.
pub const MODEL_KEYS: [&str; 3] = [API_KEY.name, OPENAI_KEY.name, GEMINI_KEY.name];

/// Variables that commands need to find programs, their home, and the user's language and time zone, and those
/// that begin with `LC_`. They are handed to the `local` sandbox, and nothing else of the environment is.
const PASSTHROUGH: [&str; 7] = ["PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL"];

/// Variables of the programs that build an image (`mmdebstrap`, `pip`), beside those of [`PASSTHROUGH`] and those that begin
/// with `PIP_`: their proxies, and whose certificates they trust.
const BUILD_VARIABLES: [&str; 12] = [
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "XDG_CACHE_HOME",
];

/// A snapshot of the variables in [`VARIABLES`], and of those few that commands need.
#[derive(Clone, Default)]
pub struct ProcessEnv {
    values: BTreeMap<&'static str, OsString>,
    passthrough_env: BTreeMap<OsString, OsString>,
    build_env: BTreeMap<OsString, OsString>,
    other: OtherVariables,
}

/// Where variables are looked up that only a user's configuration names, such as the key of a model.
#[derive(Clone)]
enum OtherVariables {
    /// In this process.
    OfProcess,
    /// In these pairs.
    Pairs(BTreeMap<String, OsString>),
}

impl Default for OtherVariables {
    fn default() -> Self {
        Self::Pairs(BTreeMap::new())
    }
}

impl ProcessEnv {
    /// The variables of this process, as they are now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn from_process() -> Self {
        let values = VARIABLES
            .iter()
            .filter_map(|variable| Some((variable.name, std::env::var_os(variable.name)?)))
            .collect();
        let passthrough_env = std::env::vars_os().filter(|(name, _)| is_passthrough(name)).collect();
        let build_env = std::env::vars_os().filter(|(name, _)| is_build_variable(name)).collect();
        Self { values, passthrough_env, build_env, other: OtherVariables::OfProcess }
    }

    /// These variables and no others, for tests and for embedders that do not want the variables of the process.
    /// Names that are neither in [`VARIABLES`] nor needed by commands are only found by a configuration that names them.
    pub fn from_pairs<N: AsRef<str>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut environment = Self::default();
        let mut other = BTreeMap::new();
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.into());
            other.insert(name.to_owned(), value.clone());
            if let Some(known) = VARIABLES.iter().find(|variable| variable.name == name) {
                environment.values.insert(known.name, value.clone());
            }
            if is_passthrough(OsStr::new(name)) {
                environment.passthrough_env.insert(name.into(), value.clone());
            }
            if is_build_variable(OsStr::new(name)) {
                environment.build_env.insert(name.into(), value);
            }
        }
        environment.other = OtherVariables::Pairs(other);
        environment
    }

    /// The value of any variable of this process, for a user who passes one on by name (`conjure run --env NAME`).
    /// `None` if it is not set, or not UTF-8.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn var(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// The variables that commands need.
    pub(crate) const fn passthrough(&self) -> &BTreeMap<OsString, OsString> {
        &self.passthrough_env
    }

    /// The variables that the programs need that build an image.
    #[must_use]
    pub fn build_env(&self) -> Vec<(OsString, OsString)> {
        let all = self.passthrough_env.iter().chain(&self.build_env);
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The user's home folder, if it is known.
    #[must_use]
    pub fn home(&self) -> Option<PathBuf> {
        self.path(HOME).filter(|home| home.is_absolute())
    }

    /// The configuration file that `CONJURE_CONFIG` names.
    #[must_use]
    pub fn config_file(&self) -> Option<PathBuf> {
        self.path(CONFIG)
    }

    /// The default data folder of the command: `conjure` in the folder that `XDG_DATA_HOME` names, else in
    /// `~/.local/share`.
    #[must_use]
    pub fn data_folder(&self) -> Option<PathBuf> {
        let named = self.path(DATA_HOME).filter(|folder| folder.is_absolute());
        let usual = || self.home().map(|home| home.join(".local/share"));
        named.or_else(usual).map(|folder| folder.join("conjure"))
    }

    /// The filter of the command's log; `None`: no log.
    #[must_use]
    pub fn log_filter(&self) -> Option<&str> {
        self.values.get(LOG.name)?.to_str().filter(|filter| !filter.is_empty())
    }

    /// Whether the user wants no colours, by `NO_COLOR` (<https://no-color.org>) or a terminal without them.
    #[must_use]
    pub fn no_color(&self) -> bool {
        let dumb = self.values.get(TERM.name).is_some_and(|term| term == "dumb");
        dumb || self.values.get(NO_COLOR.name).is_some_and(|value| !value.is_empty())
    }

    /// The socket of systemd: a path, or an abstract name behind `@`.
    #[must_use]
    pub fn notify_socket(&self) -> Option<&str> {
        self.values.get(NOTIFY_SOCKET.name).and_then(|path| path.to_str()).filter(|path| !path.is_empty())
    }

    /// The value of any variable that a configuration names, such as the key of a model. `None` if it is not set, empty, or not UTF-8.
    pub(crate) fn named(&self, name: &str) -> Option<String> {
        let value = match &self.other {
            OtherVariables::OfProcess => Self::var(name),
            OtherVariables::Pairs(pairs) => {
                pairs.get(name).and_then(|value| value.to_str()).map(str::to_owned)
            }
        };
        value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The names of those of [`MODEL_KEYS`] that are set. Their values stay in the environment.
    pub fn model_keys(&self) -> impl Iterator<Item = &'static str> {
        MODEL_KEYS.into_iter().filter(|name| self.values.get(name).is_some_and(|key| !key.is_empty()))
    }

    /// The key of vaults, if it is set.
    #[cfg(feature = "vaults")]
    #[must_use]
    pub fn vault_key(&self) -> Option<secrecy::SecretString> {
        let key = self.values.get(VAULT_KEY.name)?.to_str()?.trim();
        (!key.is_empty()).then(|| key.into())
    }

    /// Whether a key for the Messages API is set. Its value stays in the environment.
    #[must_use]
    pub fn has_api_key(&self) -> bool {
        self.values.get(API_KEY.name).is_some_and(|key| !key.is_empty())
    }

    /// The key for the Messages API, if it is set and UTF-8.
    #[cfg(feature = "anthropic")]
    #[must_use]
    pub fn api_key(&self) -> Option<secrecy::SecretString> {
        let key = self.values.get(API_KEY.name)?.to_str()?;
        (!key.is_empty()).then(|| key.into())
    }

    /// The folder of the user's container engine sockets.
    pub(crate) fn runtime_folder(&self) -> Option<PathBuf> {
        self.path(RUNTIME_DIR)
    }

    /// The layer of settings from the variables.
    ///
    /// # Errors
    ///
    /// If the value of a variable is not valid; the message names the variable.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let paths = |variable: Variable| -> Option<Vec<PathBuf>> {
            let value = self.values.get(variable.name)?;
            Some(std::env::split_paths(value).filter(|path| !path.as_os_str().is_empty()).collect())
        };
        Ok(Settings {
            skill_paths: paths(SKILL_PATHS),
            trusted_projects: paths(TRUSTED_PROJECTS),
            executor: self.parse(EXECUTOR, |text| text.parse::<ExecutorKind>())?,
            image: self.parse(IMAGE, |text| Ok(text.to_owned()))?,
            runtime: self.parse(RUNTIME, |text| Ok(text.to_owned()))?,
            container_user: self.parse(CONTAINER_USER, |text| Ok(text.to_owned()))?,
            volumes: self.parse(VOLUMES, |text| Ok(parse_list(text).map(str::to_owned).collect()))?,
            engine: self.parse(DOCKER_HOST, |text| Ok(text.to_owned()))?,
            tool_timeout: self.parse(TOOL_TIMEOUT, parse_duration)?,
            max_iterations: self.parse(MAX_ITERATIONS, parse_integer)?,
            network: self.parse(NETWORK, |text| parse_network(parse_list(text)))?,
            private_addresses: self
                .parse(PRIVATE_ADDRESSES, |text| parse_list(text).map(parse_range).collect())?,
            allowed_paths: paths(ALLOWED_PATHS),
            data: self.path(DATA),
            memory: self.parse(MEMORY, parse_size)?,
            cpus: self.parse(CPUS, parse_cpus)?,
            disk_limit: self.parse(DISK_LIMIT, parse_disk_limit)?,
            floor: self.parse(REQUIRE, |text| parse_floor(parse_list(text)))?,
            model: self.parse(MODEL, |text| Ok(text.to_owned()))?,
            base_url: self.parse(BASE_URL, |text| Ok(text.to_owned()))?,
            profile: self.parse(PROFILE, |text| text.parse::<ApiProfile>())?,
            max_tokens: self.parse(MAX_TOKENS, parse_integer)?,
            model_timeout: self.parse(MODEL_TIMEOUT, parse_duration)?,
            artifacts: self.parse(ARTIFACTS, super::artifacts::parse_word)?,
            // Pools are for long-running processes, which have a file.
            pool: None,
            compaction: None,
            skills: None,
            models: BTreeMap::new(),
            mcp: Default::default(),
            serve: Default::default(),
        })
    }

    fn path(&self, variable: Variable) -> Option<PathBuf> {
        self.values.get(variable.name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn parse<T>(
        &self,
        variable: Variable,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.values.get(variable.name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        value
            .to_str()
            .ok_or_else(|| "its value is not UTF-8".to_owned())
            .and_then(|text| parse(text.trim()))
            .map(Some)
            .map_err(|reason| ConfigError::Variable { name: variable.name, reason })
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    parse_seconds(seconds)
}

/// Words separated by commas.
fn parse_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn parse_integer(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number"))
}

fn is_build_variable(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| BUILD_VARIABLES.contains(&name) || name.starts_with("PIP_"))
}

fn is_passthrough(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"LC_") || PASSTHROUGH.iter().any(|known| name == *known)
}

/// Names only: a value may be a secret.
impl std::fmt::Debug for ProcessEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.values.keys()).finish()
    }
}
