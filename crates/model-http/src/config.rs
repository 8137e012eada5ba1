//! [`HttpConfig`]: address, key, headers, timeouts and limits of a client of one model service.

use std::fmt;

use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use self::error::printable;
use crate::prices::Prices;

mod error;
mod headers;
mod limits;

pub use error::HttpConfigError;
pub use headers::is_secret_header;
pub use limits::{ResponseLimits, Timeouts};

/// Whether requests may be sent over plain HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaintextPolicy {
    /// `http://` for loopback addresses only.
    LoopbackOnly,
    /// `http://` for any host: the embedder trusts the network.
    Anywhere,
}

/// The header that carries a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header of this name (in lower case) with the key alone: `x-api-key`, `api-key`, `x-goog-api-key`.
    Named(&'static str),
}

/// The configuration of a client. `Debug` shows neither the key nor the values of headers and query parameters.
#[derive(Clone)]
pub struct HttpConfig {
    key: Option<(SecretString, KeyHeader)>,
    key_name: String,
    base_url: String,
    query: Vec<(String, String)>,
    /// The headers that the wire needs. They are not secrets.
    wire_headers: Vec<(&'static str, &'static str)>,
    headers: Vec<(String, SecretString)>,
    plaintext: PlaintextPolicy,
    pub(crate) proxy: Option<String>,
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: ResponseLimits,
    pub(crate) retries: u32,
    pub(crate) seed: Option<u64>,
    pub(crate) prices: Prices,
}

impl HttpConfig {
    /// Creates a configuration for the service at this base URL, without a key, with 2 retries.
    ///
    /// The URL may have a path: `https://host/v1`. It has no query; see [`HttpConfig::with_query`].
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            key: None,
            key_name: "API_KEY".to_owned(),
            base_url: base_url.into(),
            query: Vec::new(),
            wire_headers: Vec::new(),
            headers: Vec::new(),
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

    /// Sets the key, and the header that carries it. Local servers need none.
    #[must_use]
    pub fn with_key(mut self, key: SecretString, header: KeyHeader) -> Self {
        self.key = Some((key, header));
        self
    }

    /// Removes the key, for servers that need none.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    /// Changes the header that carries the key. Without a key, this does nothing.
    #[must_use]
    pub fn with_key_header(mut self, header: KeyHeader) -> Self {
        self.key = self.key.map(|(key, _)| (key, header));
        self
    }

    /// Sets the name of the key in redacted texts, such as its environment variable: `[REDACTED:OPENAI_API_KEY]`.
    #[must_use]
    pub fn with_key_name(mut self, name: impl Into<String>) -> Self {
        self.key_name = name.into();
        self
    }

    /// Sets the base URL, to which the wire appends its paths.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// Adds a parameter to the query of every URL, such as `api-version` for Azure.
    #[must_use]
    pub fn with_query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header that the wire needs in every request. It is not a secret. The name must be in lower case.
    #[must_use]
    pub fn with_wire_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.wire_headers.push((name, value));
        self
    }

    /// Adds the user's own header to every request. It replaces a wire header of the same name.
    ///
    /// `Debug` and logs do not show its value. Errors do not show it either, if it looks like a secret ([`is_secret_header`]).
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: SecretString) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// Sets whether requests may be sent over `http://`.
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

    /// Adds a trusted root certificate (DER) to the machine's own.
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

    /// Sets how often a call is retried while no output was shown.
    #[must_use]
    pub const fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Seeds the jitter of retries, so that it is the same in every run.
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

    /// The validated base URL, without a trailing slash.
    ///
    /// # Errors
    /// [`HttpConfigError::BaseUrl`].
    pub fn service_url(&self) -> Result<Url, HttpConfigError> {
        let url = Url::parse(self.base_url.trim());
        let mut url = url.map_err(|error| HttpConfigError::BaseUrl {
            // An unparsable URL may hold a password.
            url: "…".to_owned(),
            reason: format!("{error}; write it like `https://HOST/PATH`"),
        })?;
        let refuse = |url: &Url, reason: &str| {
            let mut url = url.clone();
            // Both fail only for URLs that cannot have a user name and a password.
            let _ = url.set_username("").and_then(|()| url.set_password(None));
            url.set_query(None);
            url.set_fragment(None);
            Err(HttpConfigError::BaseUrl { url: url.to_string(), reason: reason.to_owned() })
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(&url, "it holds a user name or password; the key is configured apart");
        }
        if url.query().is_some() {
            return refuse(
                &url,
                "it holds a query; give the path only, and set the query's parameters apart",
            );
        }
        if url.fragment().is_some() {
            return refuse(&url, "it holds a fragment; give the path only");
        }
        match url.scheme() {
            "https" => {}
            "http" if self.plaintext == PlaintextPolicy::Anywhere => {}
            "http" if is_loopback(&url) && !self.has_distant_proxy() => {}
            "http" if is_loopback(&url) => {
                return refuse(
                    &url,
                    "requests would travel to the proxy in plain text; use no proxy for loopback",
                );
            }
            "http" if self.key.is_some() => {
                return refuse(&url, "the key would travel in plain text; use `https://`");
            }
            "http" => {
                return refuse(
                    &url,
                    "requests would travel in plain text; use `https://`, or allow plain text for this service",
                );
            }
            _ => return refuse(&url, "only `https://`, and `http://` for loopback, can be reached"),
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(url)
    }

    /// Whether there is a proxy and it is not on loopback.
    fn has_distant_proxy(&self) -> bool {
        let is_near = |proxy: &String| Url::parse(proxy).is_ok_and(|url| is_loopback(&url));
        self.proxy.as_ref().is_some_and(|proxy| !is_near(proxy))
    }

    /// The query parameters that every URL gets.
    pub(crate) fn query(&self) -> &[(String, String)] {
        &self.query
    }

    /// The key; empty if there is none.
    pub(crate) fn exposed_key(&self) -> &str {
        self.key.as_ref().map_or("", |(key, _)| key.expose_secret())
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: Vec<&str>| pairs.into_iter().map(printable).collect::<Vec<_>>();
        f.debug_struct("HttpConfig")
            .field("base_url", &self.service_url().map(|url| url.to_string()))
            .field("key_header", &self.key.as_ref().map(|(_, header)| header))
            .field("query", &names(self.query.iter().map(|(name, _)| name.as_str()).collect()))
            .field("headers", &names(self.headers.iter().map(|(name, _)| name.as_str()).collect()))
            .field("timeouts", &self.timeouts)
            .field("limits", &self.limits)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
