//! What may be asked for at all: schemes, ports, hosts, and the addresses that names lead to.
//!
//! Every hop of a fetch comes through here, and what is dialled for it are the addresses that [`Guard::resolve`] gave, of a name that
//! was resolved once. It owns no state but the rules, which never change.

use std::net::SocketAddr;

use conjure_egress::{Egress, Host, Policy, Reason, Target};

use super::ports;
use super::web_url::{AnyUrl, NoWebUrl, WebUrl};
use crate::error::{ArtifactError, Retry};
use crate::shown::shown_text;

/// What is asked, and whom.
#[derive(Debug)]
pub(crate) struct Guard {
    schemes: Vec<String>,
    blocked: Vec<Host>,
    egress: Egress,
}

impl Guard {
    /// `schemes` in lower case.
    pub(crate) const fn new(schemes: Vec<String>, blocked: Vec<Host>, egress: Egress) -> Self {
        Self { schemes, blocked, egress }
    }

    /// Reads a URL and checks what can be checked before anybody is asked, for somebody who reaches so much of the network.
    pub(crate) fn admit(&self, text: &str, network: &Policy) -> Result<WebUrl, ArtifactError> {
        let invalid = |NoWebUrl(reason)| ArtifactError::InvalidUri { uri: shown_text(text), reason };
        let url = AnyUrl::parse(text).map_err(invalid)?;
        self.check_scheme(&url, "")?;
        let url = WebUrl::try_from(url).map_err(invalid)?;
        self.check_target(&url, network)?;
        Ok(url)
    }

    /// The same for where a redirect leads.
    pub(crate) fn follow(
        &self,
        from: &WebUrl,
        location: &str,
        network: &Policy,
    ) -> Result<WebUrl, ArtifactError> {
        let invalid = |NoWebUrl(reason)| ArtifactError::FetchFailed {
            url: from.shown(),
            reason: format!(
                "it redirects to `{}`, which is no URL to follow: {reason}",
                shown_text(location)
            ),
            retry: Retry::Useless,
        };
        let url = from.join(location).map_err(invalid)?;
        self.check_scheme(&url, ", and the URL redirects there")?;
        let url = WebUrl::try_from(url).map_err(invalid)?;
        self.check_target(&url, network)?;
        Ok(url)
    }

    /// The addresses to dial, all of them checked. The name is resolved here and nowhere else.
    pub(crate) async fn resolve(&self, url: &WebUrl) -> Result<Vec<SocketAddr>, ArtifactError> {
        let target = url.target();
        let host = || target.host().to_string();
        let addresses = self.egress.resolve(target).await.map_err(|refusal| match refusal.reason {
            reason @ (Reason::NetworkOff
            | Reason::NameNotListed
            | Reason::AddressNotListed
            | Reason::PortNotListed { .. }) => unreached(target, &reason),
            Reason::NotPublic { .. } | Reason::OwnAddress { .. } => {
                ArtifactError::PrivateAddress { host: host() }
            }
            Reason::ResolveTimedOut { waited } => {
                ArtifactError::TimedOut { what: format!("resolving the name `{}`", host()), waited }
            }
            reason => ArtifactError::FetchFailed {
                url: url.shown(),
                reason: reason.to_string(),
                retry: Retry::MayHelp,
            },
        })?;
        if addresses.iter().any(|address| self.blocked.contains(&Host::from(address.ip()))) {
            return Err(ArtifactError::HostBlocked { host: host() });
        }
        Ok(addresses)
    }

    fn check_scheme(&self, url: &AnyUrl, why: &str) -> Result<(), ArtifactError> {
        if self.schemes.iter().any(|scheme| scheme == url.scheme()) {
            return Ok(());
        }
        Err(ArtifactError::scheme_not_allowed(&shown_text(url.scheme()), &self.schemes, why))
    }

    fn check_target(&self, url: &WebUrl, network: &Policy) -> Result<(), ArtifactError> {
        let target = url.target();
        network.check(target).map_err(|reason| unreached(target, &reason))?;
        if self.blocked.contains(target.host()) {
            return Err(ArtifactError::HostBlocked { host: target.host().to_string() });
        }
        if ports::is_blocked(target.port()) {
            return Err(ArtifactError::HostBlocked { host: target.to_string() });
        }
        Ok(())
    }
}

/// What a policy does not reach.
fn unreached(target: &Target, reason: &Reason) -> ArtifactError {
    match reason {
        Reason::NetworkOff => ArtifactError::FetchDisabled,
        Reason::PortNotListed { .. } => ArtifactError::HostBlocked { host: target.to_string() },
        _ => ArtifactError::HostBlocked { host: target.host().to_string() },
    }
}
