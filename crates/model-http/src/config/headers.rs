//! The headers of every request of a client, and the redaction of their secrets.

use conjure_base::{Redactor, is_sensitive_variable};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;

use super::error::{HttpConfigError, printable};
use super::{HttpConfig, KeyHeader};

/// The headers that the client sets itself.
const OWN_HEADERS: [&str; 6] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];

impl HttpConfig {
    /// The headers of every request. Secret headers are marked as sensitive, so that no log shows them.
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

    /// The redactor of this configuration. It replaces the key, the values of secret headers, and sensitive query parameters.
    pub(crate) fn redactor(&self) -> Redactor {
        let mut secrets = vec![(self.key_name.clone(), self.exposed_key().to_owned())];
        for (name, value) in &self.headers {
            let value = value.expose_secret().trim();
            if !is_secret_header(name, value) {
                continue;
            }
            let name = printable(name).to_ascii_uppercase();
            // A service may quote the token of `Bearer TOKEN` alone.
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

/// Whether texts must not show the value of a header: its name says so, or its value looks like a token. Titles, versions and team names do
/// not.
#[must_use]
pub fn is_secret_header(name: &str, value: &str) -> bool {
    let name = name.trim().replace('-', "_");
    let is_authorization = name.to_ascii_lowercase().ends_with("authorization");
    let has = |predicate: fn(&u8) -> bool| value.bytes().any(|byte| predicate(&byte));
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
