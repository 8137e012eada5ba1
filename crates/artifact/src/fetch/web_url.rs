//! A URL of the web in one normal form, and what of it may be shown.
//!
//! It is read by the rules of the URL Standard, made stricter: no control characters, white space or backslashes, which that standard
//! drops or replaces, no user names and passwords, and a host in the one form that is compared, resolved and dialled
//! ([`conjure_egress::Host`]). Two spellings of a URL are one entry of the cache. It owns no state.

use std::num::NonZeroU16;

use conjure_egress::{Host, Target};
use reqwest::Url;

use crate::shown::cut;

/// The longest URL that is fetched, in bytes.
const LONGEST: usize = 8 << 10;

/// Why a text is no URL that is fetched: a fragment, fit for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoWebUrl(pub(crate) String);

/// A URL in normal form: `http` or `https`, without user name, password and fragment, its host in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebUrl {
    url: Url,
    target: Target,
}

/// A URL whose scheme is known and whose host was not looked at.
#[derive(Debug)]
pub(crate) struct AnyUrl(Url);

impl AnyUrl {
    /// Reads an absolute URL, with two slashes behind its scheme.
    pub(crate) fn parse(text: &str) -> Result<Self, NoWebUrl> {
        check(text)?;
        let rest = text.split_once(':').map(|(_, rest)| rest).unwrap_or_default();
        if !rest.starts_with("//") || rest.starts_with("///") {
            return Err(NoWebUrl("write it as `https://HOST/PATH`".to_owned()));
        }
        Url::parse(text).map(Self).map_err(|error| NoWebUrl(error.to_string()))
    }

    /// In lower case.
    pub(crate) fn scheme(&self) -> &str {
        self.0.scheme()
    }
}

impl TryFrom<AnyUrl> for WebUrl {
    type Error = NoWebUrl;

    fn try_from(AnyUrl(mut url): AnyUrl) -> Result<Self, NoWebUrl> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NoWebUrl("only `http` and `https` are fetched".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NoWebUrl(
                "it has a user name or a password, which nobody is told: remove them".to_owned(),
            ));
        }
        let host =
            Host::parse(url.host_str().unwrap_or_default()).map_err(|error| NoWebUrl(error.to_string()))?;
        let port = url.port_or_known_default().and_then(NonZeroU16::new);
        let port = port.ok_or_else(|| NoWebUrl("the port is no number from 1 to 65535".to_owned()))?;
        url.set_fragment(None);
        url.set_host(Some(&host.to_string())).map_err(|error| NoWebUrl(error.to_string()))?;
        Ok(Self { url, target: Target::new(host, port) })
    }
}

impl WebUrl {
    /// Where a `Location` leads from here.
    pub(crate) fn join(&self, location: &str) -> Result<AnyUrl, NoWebUrl> {
        check(location)?;
        self.url.join(location).map(AnyUrl).map_err(|error| NoWebUrl(error.to_string()))
    }

    /// Its host and port.
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

    /// What lies behind the last slash of its path, as it is written.
    pub(crate) fn last_segment(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }

    /// Fit for the model and for logs: the values of its query, which may be secrets, are left out.
    pub(crate) fn shown(&self) -> String {
        let mut shown = format!("{}://{}", self.url.scheme(), self.target.host());
        if let Some(port) = self.url.port() {
            shown.push_str(&format!(":{port}"));
        }
        shown.push_str(self.url.path());
        for (at, field) in self.url.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
            shown.push(if at == 0 { '?' } else { '&' });
            if let Some((name, _)) = field.split_once('=') {
                shown.push_str(name);
                shown.push('=');
            }
            shown.push('…');
        }
        cut(&shown)
    }
}

fn check(text: &str) -> Result<(), NoWebUrl> {
    if text.len() > LONGEST {
        return Err(NoWebUrl(format!("it is longer than {LONGEST} bytes")));
    }
    let odd = text.chars().find(|c| c.is_control() || c.is_whitespace() || *c == '\\');
    odd.map_or(Ok(()), |odd| Err(NoWebUrl(format!("it has the character {odd:?}: percent-encode it"))))
}

#[cfg(test)]
mod tests;
