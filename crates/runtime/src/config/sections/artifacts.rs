//! Settings of artifacts (ADR-0018, section 9).

use std::path::PathBuf;
use std::time::Duration;

use conjure_artifact::{ArtifactOptions, UrlCache, UrlFetch};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::values;

/// Whether sessions may have artifacts, and the limits of a fetch. A `None` leaves the choice to the layer below. The
/// defaults are those of [`ArtifactOptions`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "a table")]
pub struct ArtifactSettings {
    /// Whether sessions have artifacts. Default: they do.
    pub enabled: Option<bool>,
    /// The directories beneath which files may be registered. Default: any file on this machine. An empty list allows
    /// none.
    pub allowed_dirs: Option<Vec<PathBuf>>,
    /// The largest size of a registered file or content in bytes.
    #[serde(deserialize_with = "values::size")]
    pub max_file_size: Option<u64>,
    /// Whether URLs are fetched.
    pub url_fetch_enabled: Option<bool>,
    /// The longest time of a fetch.
    #[serde(deserialize_with = "values::seconds")]
    pub url_timeout: Option<Duration>,
    /// The largest size of a fetched content in bytes.
    #[serde(deserialize_with = "values::size")]
    pub url_max_size: Option<u64>,
    /// Hosts from which nothing is fetched.
    pub blocked_hosts: Option<Vec<String>>,
    /// The schemes of URLs that are fetched.
    pub allowed_schemes: Option<Vec<String>>,
    /// Whether fetched contents are cached.
    pub cache_fetched_urls: Option<bool>,
    /// How long cached content is used before the server is asked again.
    #[serde(deserialize_with = "values::seconds")]
    pub cache_ttl: Option<Duration>,
    /// How long the artifacts of an unused session are kept.
    #[serde(deserialize_with = "session_ttl")]
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
    pub(crate) fn check(&self) -> Result<(), String> {
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
        Ok(())
    }

    /// The resulting options; `None` if sessions have no artifacts.
    pub(crate) fn options(&self) -> Option<ArtifactOptions> {
        if self.enabled == Some(false) {
            return None;
        }
        let defaults = ArtifactOptions::default();
        let cache = match (self.cache_fetched_urls, self.cache_ttl) {
            (Some(false), _) => UrlCache::Off,
            (_, Some(ttl)) => UrlCache::For(ttl),
            (_, None) => defaults.cache,
        };
        Some(ArtifactOptions {
            allowed_dirs: self.allowed_dirs.clone(),
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

/// A number of seconds, or `never`.
fn session_ttl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SessionTtl>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number of seconds or \"never\" is needed")]
    enum Ttl {
        Seconds(f64),
        Never(Never),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Never {
        Never,
    }
    match Ttl::deserialize(deserializer)? {
        Ttl::Seconds(seconds) => {
            values::parse_seconds(seconds).map(|time| Some(SessionTtl::For(time))).map_err(D::Error::custom)
        }
        Ttl::Never(Never::Never) => Ok(Some(SessionTtl::Unlimited)),
    }
}
