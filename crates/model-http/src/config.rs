//! [`HttpConfig`]: address, key, headers, timeouts and limits of a client of one model service.

use std::fmt;
use std::time::Duration;

use conjure_base::{Redactor, is_sensitive_variable};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::prices::Prices;

/// Whether requests may be sent over plain HTTP.
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
    /// Between two chunks of a streamed response, the first included: 120 s by default. Services ping far more often.
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

/// The header that a key travels in.
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
    /// The headers that the wire needs. They are not secret.
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

/// Why a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpConfigError {
    /// The key cannot be sent in a header.
    #[error("the API key {reason}; check how it was copied")]
    Key {
        /// What is wrong with it. The key is not shown.
        reason: &'static str,
    },
    /// The base URL is invalid.
    #[error("the base URL `{url}` cannot be used: {reason}")]
    BaseUrl {
        /// The URL, without user name, password and query.
        url: String,
        /// Why, and how to mend it.
        reason: String,
    },
    /// A header cannot be sent.
    #[error("the header `{name}` cannot be sent: {reason}")]
    Header {
        /// Its name.
        name: String,
        /// Why, and how to mend it. The value is not shown.
        reason: &'static str,
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
}

/// Headers that the client writes itself.
const OWN_HEADERS: [&str; 6] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];

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

    /// Sets the key, and the header that it travels in. Local servers need none.
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

    /// Changes the header that the key travels in. Without a key it does nothing.
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

    /// Adds a header that the wire needs in every request. It is not secret. The name is in lower case.
    #[must_use]
    pub fn with_wire_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.wire_headers.push((name, value));
        self
    }

    /// Adds a header of the user's to every request. It replaces one of the wire. `Debug` and logs do not show its value. Errors do not either, if
    /// it looks like a secret ([`is_secret_header`]).
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

    /// The validated base URL, without a slash at its end.
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
            // Both fail only for addresses that cannot have them.
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

    /// Whether there is a proxy that is not on loopback.
    fn has_distant_proxy(&self) -> bool {
        let is_near = |proxy: &String| Url::parse(proxy).is_ok_and(|url| is_loopback(&url));
        self.proxy.as_ref().is_some_and(|proxy| !is_near(proxy))
    }

    /// The query's parameters of every URL.
    pub(crate) fn query(&self) -> &[(String, String)] {
        &self.query
    }

    /// The key; empty if there is none.
    pub(crate) fn exposed_key(&self) -> &str {
        self.key.as_ref().map_or("", |(key, _)| key.expose_secret())
    }

    /// The headers of every request. Secret ones are marked as sensitive, so that no log shows them.
    ///
    /// # Errors
    /// [`HttpConfigError::Key`], [`HttpConfigError::Header`].
    pub(crate) fn common_headers(&self) -> Result<HeaderMap, HttpConfigError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.wire_headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut key_header = None;
        if let Some((key, header)) = &self.key {
            let key = key.expose_secret();
            check_key(key)?;
            let (name, value) = match header {
                KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
                KeyHeader::Named(name) => (HeaderName::from_static(name), key.to_owned()),
            };
            let value = HeaderValue::try_from(value)
                .map_err(|_| HttpConfigError::Key { reason: "holds characters that no header can carry" })?;
            headers.insert(name.clone(), sensitive(value));
            key_header = Some(name);
        }
        for (name, value) in &self.headers {
            let refuse = |reason| HttpConfigError::Header { name: printable(name), reason };
            let header = HeaderName::try_from(name.trim())
                .map_err(|_| refuse("its name has characters that no header's name has"))?;
            if OWN_HEADERS.contains(&header.as_str()) {
                return Err(refuse("the client writes it itself; leave it out"));
            }
            if key_header.as_ref() == Some(&header) {
                return Err(refuse("it carries the key; set either the key or this header"));
            }
            let value = HeaderValue::try_from(value.expose_secret()).map_err(|_| {
                refuse("its value has a line break or another character that no header can carry")
            })?;
            headers.insert(header, sensitive(value));
        }
        Ok(headers)
    }

    /// Replaces the key, the values of secret headers and sensitive query parameters in texts.
    pub(crate) fn redactor(&self) -> Redactor {
        let mut secrets = vec![(self.key_name.clone(), self.exposed_key().to_owned())];
        for (name, value) in &self.headers {
            let value = value.expose_secret().trim();
            if !is_secret_header(name, value) {
                continue;
            }
            let name = printable(name).to_ascii_uppercase();
            // Of `Bearer TOKEN`, a service may quote the token alone.
            if let Some((_, token)) = value.rsplit_once(' ') {
                secrets.push((name.clone(), token.to_owned()));
            }
            secrets.push((name, value.to_owned()));
        }
        for (name, value) in self.query.iter().filter(|(name, value)| is_sensitive_variable(name, value)) {
            let name = printable(name).to_ascii_uppercase();
            secrets.push((name, value.clone()));
        }
        Redactor::new(secrets)
    }
}

/// Whether the value of a header is to be kept out of texts: its name says so, or the value looks like a token. Titles, versions and names of
/// teams are ordinary words.
#[must_use]
pub fn is_secret_header(name: &str, value: &str) -> bool {
    let name = name.trim().replace('-', "_");
    let is_authorization = name.to_ascii_lowercase().ends_with("authorization");
    let has = |wanted: fn(&u8) -> bool| value.bytes().any(|byte| wanted(&byte));
    let is_token = value.len() >= 20
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && value.bytes().all(|byte| byte.is_ascii_graphic());
    is_authorization || is_token || is_sensitive_variable(&name, value)
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// A name for messages: a user may have taken a value for a name.
fn printable(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(60).collect()
}

/// Whether a header can carry the key.
fn check_key(key: &str) -> Result<(), HttpConfigError> {
    let reason = if key.is_empty() {
        "is empty"
    } else if key.contains(['\n', '\r']) {
        "holds a line break"
    } else if key.contains([' ', '\t']) {
        "holds a space"
    } else if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        "holds characters that no header can carry"
    } else {
        return Ok(());
    };
    Err(HttpConfigError::Key { reason })
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
