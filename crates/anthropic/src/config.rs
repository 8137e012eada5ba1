//! [`Config`]: address, API profile, key, timeouts and limits of a client.

use std::fmt;
use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use crate::prices::Prices;

/// The default address of the service.
pub const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";

/// The API version and its headers (`reference/skills-files-api.md`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApiProfile {
    /// Version `2023-06-01`, the key in `x-api-key`. Known to be live.
    #[default]
    Beta,
    /// Version `2026-10-21`, the key as a bearer token, as the official SDK 2.x sends it.
    Current,
}

impl ApiProfile {
    /// The value of `anthropic-version`.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::Beta => "2023-06-01",
            Self::Current => "2026-10-21",
        }
    }
}

/// The prompt caching of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// No cache breakpoints; each body is a byte prefix of the next.
    Off,
    /// Breakpoints with the default lifetime of five minutes.
    FiveMinutes,
    /// Breakpoints with a lifetime of one hour, which cost more to write.
    OneHour,
}

/// Whether the key may be sent over plain HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaintextPolicy {
    /// `http://` for loopback addresses only.
    LoopbackOnly,
    /// `http://` for any host: the embedder trusts the network.
    Anywhere,
}

/// The timeouts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For connecting: 10 s by default.
    pub connect: Duration,
    /// Between two chunks of a streamed response, the first included: 120 s by default. The service pings far more often.
    pub idle: Duration,
    /// For the whole call, waits and retries included: 10 min by default.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(600),
        }
    }
}

/// The size limits of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimits {
    /// One event of a stream, in bytes: 8 MiB by default.
    pub event: usize,
    /// A whole response, in bytes: 32 MiB by default.
    pub total: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self { event: 8 << 20, total: 32 << 20 }
    }
}

/// The configuration of a client. `Debug` does not show the key.
#[derive(Clone)]
pub struct Config {
    pub(crate) key: SecretString,
    pub(crate) profile: ApiProfile,
    pub(crate) base_url: String,
    pub(crate) plaintext: PlaintextPolicy,
    pub(crate) proxy: Option<String>,
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: ResponseLimits,
    pub(crate) retries: u32,
    pub(crate) seed: Option<u64>,
    pub(crate) prices: Prices,
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The key is empty or cannot be sent in a header.
    #[error("the API key is empty or holds characters that no header can carry; check how it was copied")]
    Key,
    /// The base URL is invalid.
    #[error("the base URL `{url}` cannot be used: {reason}")]
    BaseUrl {
        /// The URL, without user name and password.
        url: String,
        /// Why, and how to mend it.
        reason: String,
    },
    /// The proxy URL is invalid. It may hold a password, so it is not shown.
    #[error("the proxy's address cannot be used; write `http://HOST:PORT`")]
    Proxy,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// Why.
        reason: String,
    },
    /// A body field that only the client sets.
    #[error("the field `{name}` is written by the client and cannot be set; use the option for it")]
    ReservedField {
        /// Its name.
        name: String,
    },
    /// A beta name with characters that no header can carry.
    #[error("`{name}` cannot be sent as the name of a beta")]
    Beta {
        /// The name.
        name: String,
    },
}

impl Config {
    /// Creates a configuration with this key and the defaults: the service's own address, the beta profile, 2 retries.
    #[must_use]
    pub fn new(key: SecretString) -> Self {
        Self {
            key,
            profile: ApiProfile::default(),
            base_url: DEFAULT_BASE_URL.to_owned(),
            plaintext: PlaintextPolicy::LoopbackOnly,
            proxy: None,
            roots: Vec::new(),
            timeouts: Timeouts::default(),
            limits: ResponseLimits::default(),
            retries: 2,
            seed: None,
            prices: Prices::default(),
        }
    }

    /// Sets the API profile.
    #[must_use]
    pub const fn with_profile(mut self, profile: ApiProfile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets the base URL; paths such as `/v1/messages` are appended to it.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// Sets whether the key may be sent over `http://`.
    #[must_use]
    pub const fn with_plaintext(mut self, plaintext: PlaintextPolicy) -> Self {
        self.plaintext = plaintext;
        self
    }

    /// Sets an HTTP proxy. By default none is used; the environment is not read.
    #[must_use]
    pub fn with_proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Adds a trusted root certificate (DER) beside the machine's own.
    #[must_use]
    pub fn with_root(mut self, der: impl Into<Vec<u8>>) -> Self {
        self.roots.push(der.into());
        self
    }

    /// Sets the timeouts.
    #[must_use]
    pub const fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the size limits.
    #[must_use]
    pub const fn with_limits(mut self, limits: ResponseLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the number of retries of a call without shown output.
    #[must_use]
    pub const fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Seeds the jitter, so that it is the same in every run.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the prices.
    #[must_use]
    pub fn with_prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// The validated base URL, to which `/v1` is appended.
    pub(crate) fn service_url(&self) -> Result<Url, ConfigError> {
        let url = Url::parse(self.base_url.trim());
        let mut url = url.map_err(|error| ConfigError::BaseUrl {
            // An unparsable URL may hold a password.
            url: "…".to_owned(),
            reason: format!("{error}; write it like `{DEFAULT_BASE_URL}`"),
        })?;
        let refuse = |url: &Url, reason: &str| {
            let mut url = url.clone();
            // Both fail only for addresses that cannot have them.
            let _ = url.set_username("").and_then(|()| url.set_password(None));
            url.set_query(None);
            url.set_fragment(None);
            Err(ConfigError::BaseUrl { url: url.to_string(), reason: reason.to_owned() })
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(&url, "it holds a user name or password; the key is configured apart");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse(&url, "it holds a query or fragment; give the path only");
        }
        match url.scheme() {
            "https" => {}
            "http" if self.plaintext == PlaintextPolicy::Anywhere => {}
            "http" if is_loopback(&url) && !self.has_distant_proxy() => {}
            "http" if is_loopback(&url) => {
                return refuse(
                    &url,
                    "the key would travel to the proxy in plain text; use no proxy for loopback",
                );
            }
            "http" => return refuse(&url, "the key would travel in plain text; use `https://`"),
            _ => return refuse(&url, "only `https://`, and `http://` for loopback, can be reached"),
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(url)
    }

    /// Whether there is a proxy that is not on loopback.
    fn has_distant_proxy(&self) -> bool {
        let is_near = |proxy: &String| Url::parse(proxy).is_ok_and(|url| is_loopback(&url));
        self.proxy.as_ref().is_some_and(|proxy| !is_near(proxy))
    }

    /// The key, if it is valid.
    pub(crate) fn checked_key(&self) -> Result<&str, ConfigError> {
        let key = self.key.expose_secret();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::Key);
        }
        Ok(key)
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("profile", &self.profile)
            .field("base_url", &self.service_url().map(|url| url.to_string()))
            .field("timeouts", &self.timeouts)
            .field("limits", &self.limits)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        Config::new(SecretString::from("sk-canary-1234")).with_base_url(url)
    }

    #[test]
    fn the_service_lies_beneath_the_base_url() {
        for (base, expected) in [
            (DEFAULT_BASE_URL, "https://api.anthropic.com/"),
            ("https://proxy.example/llm/", "https://proxy.example/llm"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("http://[::1]:8080", "http://[::1]:8080/"),
            ("http://localhost:1", "http://localhost:1/"),
        ] {
            assert_eq!(config(base).service_url().unwrap().as_str(), expected);
        }
    }

    #[test]
    fn addresses_that_leak_the_key_or_lead_nowhere_are_refused() {
        for base in [
            "http://example.com",
            "http://127.0.0.1.example.com",
            "https://user:pass@example.com",
            "https://example.com?x=1",
            "ftp://example.com",
            "api.anthropic.com",
            "",
        ] {
            let error = config(base).service_url().unwrap_err();
            assert!(matches!(error, ConfigError::BaseUrl { .. }), "{base}");
            assert!(!error.to_string().contains("pass@"), "{error}");
        }
        let near = config("http://127.0.0.1:1").with_proxy("http://localhost:3128");
        assert!(near.service_url().is_ok());
        let distant = near.with_proxy("http://user:pass@proxy.example:3128");
        let error = distant.service_url().unwrap_err().to_string();
        assert!(error.contains("plain text") && !error.contains("pass@"), "{error}");
        assert!(distant.with_base_url(DEFAULT_BASE_URL).service_url().is_ok());
        assert!(config("http://example.com").with_plaintext(PlaintextPolicy::Anywhere).service_url().is_ok());
    }

    #[test]
    fn debug_does_not_show_the_key_and_bad_keys_are_told_without_them() {
        let text = format!("{:?}", config(DEFAULT_BASE_URL));
        assert!(text.contains("api.anthropic.com") && !text.contains("canary"), "{text}");
        for key in ["", "two words", "line\n", "schl\u{fc}ssel"] {
            assert_eq!(Config::new(SecretString::from(key)).checked_key(), Err(ConfigError::Key));
        }
    }
}
