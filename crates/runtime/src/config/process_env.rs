//! The only module that reads environment variables.
//!
//! [`ProcessEnv`] is a snapshot. A program takes it once when it starts, and passes it on as a value. So later changes by
//! another thread have no effect, and tests can use variables of their own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::sections::sandbox::{
    ExecutorKind, parse_cpus, parse_disk_limit, parse_floor, parse_network, parse_range, parse_size,
};
use crate::config::settings::{ApiProfile, Settings};
use crate::config::values::parse_seconds;
use crate::config::variables::{
    ALLOWED_PATHS, ARTIFACTS, BASE_URL, CONFIG, CONTAINER_USER, CPUS, DATA, DATA_HOME, DISK_LIMIT,
    DOCKER_HOST, EXECUTOR, HOME, IMAGE, LOG, MAX_ITERATIONS, MAX_TOKENS, MEMORY, MODEL, MODEL_KEYS,
    MODEL_TIMEOUT, NETWORK, NO_COLOR, NOTIFY_SOCKET, PRIVATE_ADDRESSES, PROFILE, REQUIRE, RUNTIME,
    RUNTIME_DIR, SKILL_PATHS, TERM, TOOL_TIMEOUT, TRUSTED_PROJECTS, VARIABLES, VOLUMES, Variable,
};

/// Variables that commands need: for finding programs and their home, and for the user's language and time zone. Those
/// that begin with `LC_` belong to them, too. The `local` sandbox gets these and no other variables of the environment.
const PASSTHROUGH: [&str; 7] = ["PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL"];

/// Variables for the programs that build an image (`mmdebstrap`, `pip`): their proxies and trusted certificates. They
/// also get those of [`PASSTHROUGH`] and those that begin with `PIP_`.
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

/// A snapshot of the variables in [`VARIABLES`], and of the few that commands need.
#[derive(Clone, Default)]
pub struct ProcessEnv {
    values: BTreeMap<&'static str, OsString>,
    passthrough_env: BTreeMap<OsString, OsString>,
    build_env: BTreeMap<OsString, OsString>,
    other: OtherVariables,
}

/// Where to look up variables that only a user's configuration names, such as the key of a model.
#[derive(Clone)]
enum OtherVariables {
    /// In the environment of this process.
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
    /// Takes a snapshot of the variables of this process.
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

    /// These variables and no others. For tests, and for embedders that do not want the variables of the process. A name
    /// that is neither in [`VARIABLES`] nor needed by commands is found only if a configuration names it.
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

    /// The variables for the programs that build an image.
    #[must_use]
    pub fn build_env(&self) -> Vec<(OsString, OsString)> {
        let all = self.passthrough_env.iter().chain(&self.build_env);
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The user's home directory, if it is known.
    #[must_use]
    pub fn home(&self) -> Option<PathBuf> {
        self.path(HOME).filter(|home| home.is_absolute())
    }

    /// The configuration file that `CONJURE_CONFIG` names.
    #[must_use]
    pub fn config_file(&self) -> Option<PathBuf> {
        self.path(CONFIG)
    }

    /// The default data directory of the command: `conjure` in the directory that `XDG_DATA_HOME` names, else in
    /// `~/.local/share`.
    #[must_use]
    pub fn data_dir(&self) -> Option<PathBuf> {
        let named = self.path(DATA_HOME).filter(|dir| dir.is_absolute());
        let usual = || self.home().map(|home| home.join(".local/share"));
        named.or_else(usual).map(|dir| dir.join("conjure"))
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

    /// The notification socket of systemd: a path, or an abstract name after `@`.
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

    /// Which of [`MODEL_KEYS`] are set, by name. Does not return their values.
    pub fn model_keys(&self) -> impl Iterator<Item = &'static str> {
        MODEL_KEYS.into_iter().filter(|name| self.values.get(name).is_some_and(|key| !key.is_empty()))
    }

    /// The key of vaults, if it is set.
    #[cfg(feature = "vaults")]
    #[must_use]
    pub fn vault_key(&self) -> Option<secrecy::SecretString> {
        let key = self.values.get(crate::config::variables::VAULT_KEY.name)?.to_str()?.trim();
        (!key.is_empty()).then(|| key.into())
    }

    /// The key for the Messages API, if it is set and UTF-8.
    #[cfg(feature = "anthropic")]
    #[must_use]
    pub fn api_key(&self) -> Option<secrecy::SecretString> {
        let key = self.values.get(crate::config::variables::API_KEY.name)?.to_str()?;
        (!key.is_empty()).then(|| key.into())
    }

    /// The directory where the user's container engines have their sockets.
    pub(crate) fn runtime_dir(&self) -> Option<PathBuf> {
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
            artifacts: self.parse(ARTIFACTS, crate::config::sections::artifacts::parse_word)?,
            // Only long-running processes use pools, and these have a configuration file.
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

/// The words of a list that is separated by commas.
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

/// Shows names only, because a value may be a secret.
impl std::fmt::Debug for ProcessEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.values.keys()).finish()
    }
}
