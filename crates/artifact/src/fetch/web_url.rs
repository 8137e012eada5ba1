//! A web URL in normal form, and its redacted form for messages.
//!
//! URLs are parsed by the URL Standard, made stricter:
//!
//! - control characters, white space and backslashes are refused, where the standard drops or replaces them;
//! - user names and passwords are refused;
//! - the host has one normal form, which is compared, resolved and dialled ([`conjure_egress::Host`]).
//!
//! So two spellings of a URL share one cache entry.

use std::num::NonZeroU16;

use conjure_egress::{Host, Target};
use reqwest::Url;

use crate::error::truncate;

/// The longest URL, in bytes.
const MAX_BYTES: usize = 8 << 10;

/// Why a URL is refused: a fragment of a message for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebUrlError(pub(crate) String);

/// A URL in normal form: `http` or `https`, without user name, password and fragment, its host in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebUrl {
    url: Url,
    target: Target,
}

/// A parsed URL whose host is not checked yet.
#[derive(Debug)]
pub(crate) struct UncheckedUrl(Url);

impl UncheckedUrl {
    /// Parses an absolute URL with two slashes after its scheme.
    pub(crate) fn parse(text: &str) -> Result<Self, WebUrlError> {
        check_characters(text)?;
        let rest = text.split_once(':').map(|(_, rest)| rest).unwrap_or_default();
        if !rest.starts_with("//") || rest.starts_with("///") {
            return Err(WebUrlError("write it as `https://HOST/PATH`".to_owned()));
        }
        Url::parse(text).map(Self).map_err(|error| WebUrlError(error.to_string()))
    }

    /// The scheme in lower case.
    pub(crate) fn scheme(&self) -> &str {
        self.0.scheme()
    }
}

impl TryFrom<UncheckedUrl> for WebUrl {
    type Error = WebUrlError;

    fn try_from(UncheckedUrl(mut url): UncheckedUrl) -> Result<Self, WebUrlError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebUrlError("only `http` and `https` are fetched".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(WebUrlError(
                "it has a user name or a password, which are never sent: remove them".to_owned(),
            ));
        }
        let host = Host::parse(url.host_str().unwrap_or_default())
            .map_err(|error| WebUrlError(error.to_string()))?;
        let port = url.port_or_known_default().and_then(NonZeroU16::new);
        let port = port.ok_or_else(|| WebUrlError("the port must be a number from 1 to 65535".to_owned()))?;
        url.set_fragment(None);
        url.set_host(Some(&host.to_string())).map_err(|error| WebUrlError(error.to_string()))?;
        Ok(Self { url, target: Target::new(host, port) })
    }
}

impl WebUrl {
    /// Resolves a `Location` header against this URL.
    pub(crate) fn join(&self, location: &str) -> Result<UncheckedUrl, WebUrlError> {
        check_characters(location)?;
        self.url.join(location).map(UncheckedUrl).map_err(|error| WebUrlError(error.to_string()))
    }

    /// The host and port.
    pub(crate) const fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) const fn as_url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn as_str(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The part of the path after the last slash, percent-encoded.
    pub(crate) fn last_segment(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }

    /// The URL for messages and logs, without the values of its query, which may be secrets.
    pub(crate) fn redacted(&self) -> String {
        let mut redacted_url = format!("{}://{}", self.url.scheme(), self.target.host());
        if let Some(port) = self.url.port() {
            redacted_url.push_str(&format!(":{port}"));
        }
        redacted_url.push_str(self.url.path());
        for (at, field) in self.url.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
            redacted_url.push(if at == 0 { '?' } else { '&' });
            if let Some((name, _)) = field.split_once('=') {
                redacted_url.push_str(name);
                redacted_url.push('=');
            }
            redacted_url.push('…');
        }
        truncate(&redacted_url)
    }
}

fn check_characters(text: &str) -> Result<(), WebUrlError> {
    if text.len() > MAX_BYTES {
        return Err(WebUrlError(format!("it is longer than {MAX_BYTES} bytes")));
    }
    let refused = text.chars().find(|c| c.is_control() || c.is_whitespace() || *c == '\\');
    refused.map_or(Ok(()), |refused| {
        Err(WebUrlError(format!("it has the character {refused:?}: percent-encode it")))
    })
}

#[cfg(test)]
mod tests;
