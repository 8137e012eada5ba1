//! The gateway of sandboxes whose network is limited or full: `conjure_egress`, under the sandbox's policy.

use std::sync::Arc;

use conjure_egress::{AllowEntry, AllowList, Egress, Policy};
use conjure_guest::protocol::TUNNELS_MAX;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::context::NetworkPolicy;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::gateway::{Gateway, Proxy, TunnelStream};

/// Where commands find the proxy: what proxies of HTTP usually have. A sandbox has its ports for itself.
const PORT: u16 = 3128;

#[derive(Debug)]
struct WayOut(Egress);

impl Gateway for WayOut {
    fn serve(self: Arc<Self>, tunnel: TunnelStream) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.0.serve(tunnel).await })
    }
}

/// The proxy of a sandbox under this policy, and like `pattern` in everything else; `None` where nothing is reached.
///
/// # Errors
/// `BadRequest`, when an entry of the list of hosts cannot be understood.
pub(crate) fn proxy(pattern: &Egress, network: &NetworkPolicy) -> Result<Option<Proxy>, SandboxError> {
    let policy = match network {
        NetworkPolicy::None => return Ok(None),
        NetworkPolicy::Limited(hosts) => Policy::Limited(allow_list(hosts)?),
        NetworkPolicy::Full => Policy::Full,
    };
    // Places of its own: no sandbox waits for the connections of another.
    let egress = pattern.clone().with_policy(policy).with_places(Arc::new(Semaphore::new(TUNNELS_MAX)));
    Ok(Some(Proxy { port: PORT, gateway: Arc::new(WayOut(egress)) }))
}

fn allow_list(hosts: &[String]) -> Result<AllowList, SandboxError> {
    let entries: Result<Vec<AllowEntry>, _> = hosts.iter().map(|host| host.parse()).collect();
    let entries = entries.map_err(|error| {
        SandboxError::new(SandboxErrorKind::BadRequest, format!("the network policy cannot be used: {error}"))
    })?;
    Ok(AllowList::new(entries))
}
