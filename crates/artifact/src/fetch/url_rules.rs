//! The rules for URLs: allowed schemes, ports, hosts and addresses.
//!
//! Every hop of a fetch is checked here. A name is resolved once, by [`UrlRules::resolve`], and only the addresses that it returns are
//! dialled. The rules never change.

use std::net::SocketAddr;

use conjure_egress::{Egress, EgressPolicy, Host, RefusalReason, Target};

use super::web_url::{UncheckedUrl, WebUrl, WebUrlError};
use crate::error::safe_excerpt;
use crate::error::{ArtifactError, Retryable};

/// Rules that every requested URL must satisfy.
#[derive(Debug)]
pub(crate) struct UrlRules {
    schemes: Vec<String>,
    blocked: Vec<Host>,
    egress: Egress,
}

impl UrlRules {
    /// Creates rules; `schemes` in lower case.
    pub(crate) const fn new(schemes: Vec<String>, blocked: Vec<Host>, egress: Egress) -> Self {
        Self { schemes, blocked, egress }
    }

    /// Parses a URL and checks everything that needs no network access.
    pub(crate) fn check(&self, text: &str, network: &EgressPolicy) -> Result<WebUrl, ArtifactError> {
        let invalid = |WebUrlError(reason)| ArtifactError::InvalidUri { uri: safe_excerpt(text), reason };
        let url = UncheckedUrl::parse(text).map_err(invalid)?;
        self.check_scheme(&url, "")?;
        let url = WebUrl::try_from(url).map_err(invalid)?;
        self.check_target(&url, network)?;
        Ok(url)
    }

    /// Checks the target of a redirect.
    pub(crate) fn check_redirect(
        &self,
        from: &WebUrl,
        location: &str,
        network: &EgressPolicy,
    ) -> Result<WebUrl, ArtifactError> {
        let invalid = |WebUrlError(reason)| ArtifactError::FetchFailed {
            url: from.redacted(),
            reason: format!(
                "it redirects to `{}`, which is not a valid URL: {reason}",
                safe_excerpt(location)
            ),
            retry: Retryable::No,
        };
        let url = from.join(location).map_err(invalid)?;
        self.check_scheme(&url, ", and the URL redirects there")?;
        let url = WebUrl::try_from(url).map_err(invalid)?;
        self.check_target(&url, network)?;
        Ok(url)
    }

    /// Resolves the host and returns its addresses, all of them checked.
    pub(crate) async fn resolve(&self, url: &WebUrl) -> Result<Vec<SocketAddr>, ArtifactError> {
        let target = url.target();
        let host = || target.host().to_string();
        let addresses = self.egress.resolve(target).await.map_err(|refusal| match refusal.reason {
            reason @ (RefusalReason::NetworkOff
            | RefusalReason::NameNotListed
            | RefusalReason::AddressNotListed
            | RefusalReason::PortNotListed { .. }) => refused_by_policy(target, &reason),
            RefusalReason::NotPublic { .. } | RefusalReason::OwnAddress { .. } => {
                ArtifactError::PrivateAddress { host: host() }
            }
            RefusalReason::ResolveTimedOut { timeout: waited } => {
                ArtifactError::TimedOut { what: format!("resolving the name `{}`", host()), waited }
            }
            reason => ArtifactError::FetchFailed {
                url: url.redacted(),
                reason: reason.to_string(),
                retry: Retryable::Yes,
            },
        })?;
        if addresses.iter().any(|address| self.blocked.contains(&Host::from(address.ip()))) {
            return Err(ArtifactError::HostBlocked { host: host() });
        }
        Ok(addresses)
    }

    fn check_scheme(&self, url: &UncheckedUrl, suffix: &str) -> Result<(), ArtifactError> {
        if self.schemes.iter().any(|scheme| scheme == url.scheme()) {
            return Ok(());
        }
        Err(ArtifactError::scheme_not_allowed(&safe_excerpt(url.scheme()), &self.schemes, suffix))
    }

    fn check_target(&self, url: &WebUrl, network: &EgressPolicy) -> Result<(), ArtifactError> {
        let target = url.target();
        network.check(target).map_err(|reason| refused_by_policy(target, &reason))?;
        if self.blocked.contains(target.host()) {
            return Err(ArtifactError::HostBlocked { host: target.host().to_string() });
        }
        if is_blocked_port(target.port()) {
            return Err(ArtifactError::HostBlocked { host: target.to_string() });
        }
        Ok(())
    }
}

/// The error for a target that a network policy refuses.
fn refused_by_policy(target: &Target, reason: &RefusalReason) -> ArtifactError {
    match reason {
        RefusalReason::NetworkOff => ArtifactError::FetchDisabled,
        RefusalReason::PortNotListed { .. } => ArtifactError::HostBlocked { host: target.to_string() },
        _ => ArtifactError::HostBlocked { host: target.host().to_string() },
    }
}

/// The "bad ports" of the Fetch Standard, section "port blocking", in ascending order. Other protocols listen there, and could
/// mistake an HTTP request for their own.
const BLOCKED_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// Whether requests to this port are refused.
fn is_blocked_port(port: u16) -> bool {
    BLOCKED_PORTS.binary_search(&port).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_ports_are_allowed_and_ports_of_mail_and_shells_are_blocked() {
        for port in [80, 443, 8080, 8443, 3000, 65535] {
            assert!(!is_blocked_port(port), "{port}");
        }
        for port in [0, 22, 25, 110, 587, 6667, 10080] {
            assert!(is_blocked_port(port), "{port}");
        }
        assert!(BLOCKED_PORTS.is_sorted());
    }
}
