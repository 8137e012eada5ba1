//! Settings of artifacts (ADR-0018, section 9).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::keys;
use conjure_artifact::{ArtifactOptions, UrlCache, UrlFetch};
use toml::{Table, Value};

use super::sandbox::parse_size;
use crate::config::paths;

/// Whether sessions may have artifacts, and the limits of a fetch. A `None` leaves the choice to the layer below. The
/// defaults are those of [`ArtifactOptions`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactSettings {
    /// Whether sessions have artifacts. Default: they do.
    pub enabled: Option<bool>,
    /// The folders beneath which files may be registered. Default: any file on this machine. An empty list allows
    /// none.
    pub allowed_dirs: Option<Vec<PathBuf>>,
    /// The largest size of a registered file or content in bytes.
    pub max_file_size: Option<u64>,
    /// Whether URLs are fetched.
    pub url_fetch_enabled: Option<bool>,
    /// The longest time of a fetch.
    pub url_timeout: Option<Duration>,
    /// The largest size of a fetched content in bytes.
    pub url_max_size: Option<u64>,
    /// Hosts from which nothing is fetched.
    pub blocked_hosts: Option<Vec<String>>,
    /// The schemes of URLs that are fetched.
    pub allowed_schemes: Option<Vec<String>>,
    /// Whether fetched contents are cached.
    pub cache_fetched_urls: Option<bool>,
    /// How long cached content is used before the server is asked again.
    pub cache_ttl: Option<Duration>,
    /// How long the artifacts of an unused session are kept.
    pub session_ttl: Option<SessionTtl>,
}

/// How long the artifacts of an unused session are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionTtl {
    /// For this time, which is greater than zero.
    For(Duration),
    /// Until the session is deleted or removes them. In the file: `"never"`.
    Unlimited,
}

impl SessionTtl {
    const fn limit(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Unlimited => None,
        }
    }
}

impl ArtifactSettings {
    /// Merges these settings over `lower`.
    #[must_use]
    pub fn merged_over(self, lower: Self) -> Self {
        Self {
            enabled: self.enabled.or(lower.enabled),
            allowed_dirs: self.allowed_dirs.or(lower.allowed_dirs),
            max_file_size: self.max_file_size.or(lower.max_file_size),
            url_fetch_enabled: self.url_fetch_enabled.or(lower.url_fetch_enabled),
            url_timeout: self.url_timeout.or(lower.url_timeout),
            url_max_size: self.url_max_size.or(lower.url_max_size),
            blocked_hosts: self.blocked_hosts.or(lower.blocked_hosts),
            allowed_schemes: self.allowed_schemes.or(lower.allowed_schemes),
            cache_fetched_urls: self.cache_fetched_urls.or(lower.cache_fetched_urls),
            cache_ttl: self.cache_ttl.or(lower.cache_ttl),
            session_ttl: self.session_ttl.or(lower.session_ttl),
        }
    }

    /// Checks the values.
    pub(crate) fn check(&self, home: Option<&Path>) -> Result<(), String> {
        for (key, time) in [
            ("url_timeout", self.url_timeout),
            ("cache_ttl", self.cache_ttl),
            ("session_ttl", self.session_ttl.and_then(SessionTtl::limit)),
        ] {
            if time.is_some_and(|time| time.is_zero()) {
                return Err(format!("`{key}` must be more than 0 seconds"));
            }
        }
        let schemes = self.allowed_schemes.iter().flatten();
        let is_web = |scheme: &&String| ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
        if let Some(scheme) = schemes.clone().find(|scheme| !is_web(scheme)) {
            return Err(format!("`allowed_schemes`: `{scheme}` cannot be fetched: write `https` or `http`"));
        }
        for folder in self.allowed_dirs.iter().flatten() {
            paths::expand(folder, home).map_err(|reason| format!("`allowed_dirs`: {reason}"))?;
        }
        Ok(())
    }

    /// The resulting options; `None` if sessions have no artifacts.
    pub(crate) fn options(&self, home: Option<&Path>) -> Option<ArtifactOptions> {
        if self.enabled == Some(false) {
            return None;
        }
        let defaults = ArtifactOptions::default();
        let expand = |folders: &Vec<PathBuf>| {
            folders.iter().map(|path| paths::expand(path, home).unwrap_or_else(|_| path.clone())).collect()
        };
        let cache = match (self.cache_fetched_urls, self.cache_ttl) {
            (Some(false), _) => UrlCache::Off,
            (_, Some(ttl)) => UrlCache::For(ttl),
            (_, None) => defaults.cache,
        };
        Some(ArtifactOptions {
            allowed_dirs: self.allowed_dirs.as_ref().map(expand),
            max_file_size: self.max_file_size.unwrap_or(defaults.max_file_size),
            url_fetch: if self.url_fetch_enabled == Some(false) { UrlFetch::Off } else { defaults.url_fetch },
            url_timeout: self.url_timeout.unwrap_or(defaults.url_timeout),
            url_max_size: self.url_max_size.unwrap_or(defaults.url_max_size),
            blocked_hosts: self.blocked_hosts.clone().unwrap_or(defaults.blocked_hosts),
            allowed_schemes: self.allowed_schemes.clone().unwrap_or(defaults.allowed_schemes),
            cache,
            session_ttl: self.session_ttl.map_or(defaults.session_ttl, SessionTtl::limit),
        })
    }
}

/// Parses the variable: `on`, `off`, or `files`, which disables fetching.
pub(crate) fn parse_word(text: &str) -> Result<ArtifactSettings, String> {
    let with = |enabled, urls| ArtifactSettings {
        enabled: Some(enabled),
        url_fetch_enabled: urls,
        ..ArtifactSettings::default()
    };
    match text {
        "on" => Ok(with(true, None)),
        "files" => Ok(with(true, Some(false))),
        "off" => Ok(with(false, None)),
        _ => Err(format!("`{text}` is neither `on`, `off` nor `files`")),
    }
}

/// Parses the table `[artifacts]` of the file. Relative paths in it are relative to `folder`.
pub(crate) fn parse(table: &Table, folder: &Path) -> Result<ArtifactSettings, String> {
    keys::check(table, "artifacts")?;
    let needs = |key: &str, what: &str, value: &Value| {
        format!("`{key}`: {what} is needed, not a {}", value.type_str())
    };
    let switch = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::Boolean(value)) => Ok(Some(*value)),
        Some(other) => Err(needs(key, "`true` or `false`", other)),
    };
    let size = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::Integer(bytes)) => {
            u64::try_from(*bytes).map(Some).map_err(|_| format!("`{key}`: {bytes} is less than 0"))
        }
        Some(Value::String(text)) => {
            parse_size(text).map(Some).map_err(|reason| format!("`{key}`: {reason}"))
        }
        Some(other) => Err(needs(key, "a size such as \"50m\" or a number of bytes", other)),
    };
    let time = |key: &str| {
        let time = table.get(key).map(crate::config::file::seconds).transpose();
        time.map_err(|reason| format!("`{key}`: {reason}"))
    };
    let words = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::Array(values)) => {
            let word = |value: &Value| match value {
                Value::String(text) => Ok(text.clone()),
                other => Err(needs(key, "a list of texts", other)),
            };
            values.iter().map(word).collect::<Result<Vec<_>, _>>().map(Some)
        }
        Some(other) => Err(needs(key, "a list of texts", other)),
    };
    let place = |text: String| if text.starts_with('~') { text.into() } else { folder.join(text) };
    Ok(ArtifactSettings {
        enabled: switch("enabled")?,
        allowed_dirs: words("allowed_dirs")?.map(|dirs| dirs.into_iter().map(place).collect()),
        max_file_size: size("max_file_size")?,
        url_fetch_enabled: switch("url_fetch_enabled")?,
        url_timeout: time("url_timeout")?,
        url_max_size: size("url_max_size")?,
        blocked_hosts: words("blocked_hosts")?,
        allowed_schemes: words("allowed_schemes")?,
        cache_fetched_urls: switch("cache_fetched_urls")?,
        cache_ttl: time("cache_ttl")?,
        session_ttl: match table.get("session_ttl") {
            Some(Value::String(word)) if word == "never" => Some(SessionTtl::Unlimited),
            Some(Value::String(word)) => {
                return Err(format!("`session_ttl`: `{word}` is neither a number of seconds nor \"never\""));
            }
            _ => time("session_ttl")?.map(SessionTtl::For),
        },
    })
}
