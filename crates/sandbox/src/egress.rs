//! The gateway of sandboxes with limited or full network: `conjure_egress` with the sandbox's policy.

use std::sync::Arc;

use conjure_egress::{AllowEntry, AllowList, Egress, EgressObserver, EgressPolicy, Refusal};
use conjure_guest::protocol::TUNNELS_MAX;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::error::{SandboxError, SandboxErrorKind};
use crate::proxy_gateway::{Gateway, Proxy, TunnelStream};
use crate::settings::context::{ExecutionContext, NetworkPolicy};
use crate::settings::sandbox_network::SandboxNetwork;

/// The port of the proxy for commands: the usual one of HTTP proxies. Each sandbox has its own port numbers.
const PORT: u16 = 3128;

#[derive(Debug)]
struct EgressGateway {
    egress: Egress,
    /// The additional policy and egress while the program starts up.
    startup: Option<(SandboxNetwork, Egress)>,
}

impl Gateway for EgressGateway {
    fn serve(self: Arc<Self>, tunnel: TunnelStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let egress = match &self.startup {
                Some((network, startup)) if network.is_starting_up() => startup,
                _ => &self.egress,
            };
            egress.serve(tunnel).await;
        })
    }
}

impl EgressObserver for SandboxNetwork {
    fn refused(&self, refusal: &Refusal) {
        if let Some(target) = &refusal.target {
            self.add_refusal(format!("`{target}` ({})", refusal.reason));
        }
    }
}

/// Creates the proxy of a sandbox with this context. All other settings are those of `pattern`. `None` if the sandbox
/// never has network, not even during the start-up.
///
/// # Errors
/// `BadRequest` if an entry of the host list is invalid.
pub(crate) fn proxy(pattern: &Egress, context: &ExecutionContext) -> Result<Option<Proxy>, SandboxError> {
    let policy = context.network.policy()?;
    let startup = match &context.sandbox_network {
        Some(network) => startup_policy(context)?.map(|policy| (network.clone(), policy)),
        None => None,
    };
    if policy == EgressPolicy::None && startup.is_none() {
        return Ok(None);
    }
    // The connections of each sandbox have a limit of their own, so no sandbox waits for those of another.
    let egress =
        pattern.clone().with_policy(policy).with_connection_permits(Arc::new(Semaphore::new(TUNNELS_MAX)));
    let egress = match &context.sandbox_network {
        Some(network) => egress.with_observer(Arc::new(network.clone())),
        None => egress,
    };
    let startup = startup.map(|(network, policy)| (network, egress.clone().with_policy(policy)));
    Ok(Some(Proxy { port: PORT, gateway: Arc::new(EgressGateway { egress, startup }) }))
}

/// The policy during the start-up; `None` if it permits no more than `network`.
fn startup_policy(context: &ExecutionContext) -> Result<Option<EgressPolicy>, SandboxError> {
    let hosts = match (&context.network, &context.startup_network) {
        (NetworkPolicy::Full, _) | (_, NetworkPolicy::None) => return Ok(None),
        (_, NetworkPolicy::Full) => return Ok(Some(EgressPolicy::Full)),
        (_, NetworkPolicy::Limited(more)) if more.is_empty() => return Ok(None),
        (NetworkPolicy::None, NetworkPolicy::Limited(more)) => more.clone(),
        (NetworkPolicy::Limited(hosts), NetworkPolicy::Limited(more)) => [&hosts[..], more].concat(),
    };
    Ok(Some(EgressPolicy::Limited(allow_list(&hosts)?)))
}

impl NetworkPolicy {
    /// The policy for the egress.
    ///
    /// # Errors
    /// `BadRequest` if an entry of the host list is invalid.
    pub fn policy(&self) -> Result<EgressPolicy, SandboxError> {
        Ok(match self {
            Self::None => EgressPolicy::None,
            Self::Limited(hosts) => EgressPolicy::Limited(allow_list(hosts)?),
            Self::Full => EgressPolicy::Full,
        })
    }

    /// The hosts that both this policy and `max` allow.
    ///
    /// # Errors
    /// `BadRequest` if an entry of a host list is invalid.
    pub fn restricted_to(&self, max: &Self) -> Result<Self, SandboxError> {
        let lists = |policy: &Self| match policy {
            Self::Limited(hosts) => allow_list(hosts).map(Some),
            Self::None | Self::Full => Ok(None),
        };
        let (mine, theirs) = (lists(self)?, lists(max)?);
        Ok(match (self, max) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::Full, policy) | (policy, Self::Full) => policy.clone(),
            (Self::Limited(_), Self::Limited(_)) => {
                let both = mine.unwrap_or_default().intersection(&theirs.unwrap_or_default());
                Self::Limited(both.entries().map(ToString::to_string).collect())
            }
        })
    }
}

fn allow_list(hosts: &[String]) -> Result<AllowList, SandboxError> {
    let entries: Result<Vec<AllowEntry>, _> = hosts.iter().map(|host| host.parse()).collect();
    let entries = entries.map_err(|error| {
        SandboxError::new(SandboxErrorKind::BadRequest, format!("the network policy cannot be used: {error}"))
    })?;
    Ok(AllowList::new(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_policy_reaches_more_within_another() {
        let list = |text: &str| NetworkPolicy::Limited(vec![text.to_owned()]);
        let within = |one: &NetworkPolicy, max: &NetworkPolicy| one.restricted_to(max).unwrap();
        for one in [NetworkPolicy::None, list("example.com"), NetworkPolicy::Full] {
            assert_eq!(within(&one, &NetworkPolicy::None), NetworkPolicy::None);
            assert_eq!(within(&NetworkPolicy::None, &one), NetworkPolicy::None);
            assert_eq!(within(&one, &NetworkPolicy::Full), one);
            assert_eq!(within(&NetworkPolicy::Full, &one), one);
            assert_eq!(within(&one, &one), one);
        }
        assert_eq!(within(&list("*.example.com"), &list("api.example.com")), list("api.example.com"));
        assert_eq!(within(&list("a.org"), &list("b.org")), NetworkPolicy::Limited(Vec::new()));
        assert!(NetworkPolicy::None.restricted_to(&list("https://a.org/")).is_err());
    }
}
