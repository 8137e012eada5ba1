//! [`Config`]: address, API profile, key, timeouts and limits of a client.

use std::fmt;

use conjure_model_http::{HttpConfig, HttpConfigError, KeyHeader, Prices};
use secrecy::SecretString;

/// The default address of the service.
pub const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";

/// The API version and its headers (`reference/skills-files-api.md`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ApiProfile {
    /// Version `2023-06-01`, with the key in `x-api-key`. Known to be live.
    #[default]
    Beta,
    /// Version `2026-10-21`, with the key as a bearer token, as the official SDK 2.x sends it.
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

    /// The header that carries the key.
    const fn key_header(self) -> KeyHeader {
        match self {
            Self::Beta => KeyHeader::Named("x-api-key"),
            Self::Current => KeyHeader::Bearer,
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

/// The configuration of a client. `Debug` does not show the key.
#[derive(Clone)]
pub struct Config {
    http: HttpConfig,
    profile: ApiProfile,
}

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The key, the address, the proxy or TLS.
    #[error(transparent)]
    Http(#[from] HttpConfigError),
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
        let profile = ApiProfile::default();
        let http = HttpConfig::new(DEFAULT_BASE_URL)
            .with_key(key, profile.key_header())
            .with_key_name("ANTHROPIC_API_KEY");
        Self { http, profile }
    }

    /// Sets the API profile.
    #[must_use]
    pub fn with_profile(mut self, profile: ApiProfile) -> Self {
        self.profile = profile;
        self.http = self.http.with_key_header(profile.key_header());
        self
    }

    /// Sets the base URL; paths such as `/v1/messages` are appended to it.
    #[must_use]
    pub fn with_base_url(self, url: impl Into<String>) -> Self {
        self.with_http(|http| http.with_base_url(url))
    }

    /// Changes the connection's settings, such as timeouts, limits, retries, the proxy, and the user's own headers and query.
    #[must_use]
    pub fn with_http(mut self, change: impl FnOnce(HttpConfig) -> HttpConfig) -> Self {
        self.http = change(self.http);
        self
    }

    /// Sets the prices.
    #[must_use]
    pub fn with_prices(self, prices: Prices) -> Self {
        self.with_http(|http| http.with_prices(prices))
    }

    /// The API profile.
    pub(crate) const fn profile(&self) -> ApiProfile {
        self.profile
    }

    /// The configuration of the connection, with the headers of the profile.
    pub(crate) fn http(&self) -> HttpConfig {
        self.http.clone().with_wire_header("anthropic-version", self.profile.version())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("profile", &self.profile).field("http", &self.http).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_address_and_not_the_key() {
        let text = format!("{:?}", Config::new(SecretString::from("sk-canary-1234")));
        assert!(text.contains("api.anthropic.com") && !text.contains("canary"), "{text}");
    }

    #[test]
    fn the_key_travels_in_the_header_of_the_profile() {
        let config = Config::new(SecretString::from("sk-canary-1234"));
        assert!(format!("{config:?}").contains("x-api-key"));
        let config = config.with_profile(ApiProfile::Current);
        assert!(format!("{config:?}").contains("Bearer"));
    }
}
