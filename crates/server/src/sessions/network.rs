//! The network of a session, from the `networking` of its environment. The runtime limits it further to the operator's policy.

use std::num::NonZeroU16;

use axum::http::Uri;
use conjure_api::{CloudConfig, Environment, LimitedNetworking, McpServer, Networking, SessionAgent};
use conjure_egress::{Host, Target};
use conjure_runtime::{PACKAGE_REGISTRIES, RuntimeError};
use conjure_sandbox::NetworkPolicy;

use crate::http::ApiError;

/// The network of a session with this agent in this environment.
///
/// # Errors
/// 400 if the environment does not permit an MCP server of the agent.
pub(crate) fn session_network(
    environment: &Environment,
    config: &CloudConfig,
    agent: &SessionAgent,
) -> Result<NetworkPolicy, ApiError> {
    let limited = match &config.networking {
        Networking::Unrestricted => return Ok(NetworkPolicy::Full),
        Networking::Limited(limited) => limited,
    };
    let network = NetworkPolicy::Limited(allowed_hosts(limited));
    let policy = network.policy().map_err(|error| {
        let message = format!(
            "environment_id: the environment `{}`: {error}; update its `allowed_hosts`",
            environment.id
        );
        ApiError::invalid(message)
    })?;
    if !limited.allow_mcp_servers {
        for (place, server) in agent.mcp_servers.iter().enumerate() {
            let is_allowed = target(server).is_some_and(|target| policy.check(&target).is_ok());
            if !is_allowed {
                return Err(ApiError::invalid(format!(
                    "environment_id: the environment `{}` does not let the agent reach `mcp_servers.{place}`, which is `{}` at `{}`; add its host \
                     to `config.networking.allowed_hosts` of the environment, or set `allow_mcp_servers` there to true",
                    environment.id, server.name, server.url
                )));
            }
        }
    }
    Ok(network)
}

/// Converts an error of opening a session. It names the field of the request that caused the error.
pub(crate) fn open_error(error: RuntimeError, environment: &Environment) -> ApiError {
    match error {
        RuntimeError::Network { reason } => ApiError::invalid(format!(
            "environment_id: the environment `{}` limits the network, and this server cannot: {reason}; use an environment whose `networking` is \
             `unrestricted`, or start the server with another sandbox",
            environment.id
        )),
        RuntimeError::PythonPackages { reason } => ApiError::invalid(format!(
            "environment_id: the environment `{}` has Python packages, and this server cannot install them: {reason}",
            environment.id
        )),
        error => error.into(),
    }
}

fn allowed_hosts(limited: &LimitedNetworking) -> Vec<String> {
    let registries = PACKAGE_REGISTRIES.iter().filter(|_| limited.allow_package_managers);
    limited.allowed_hosts.iter().cloned().chain(registries.map(|&host| host.to_owned())).collect()
}

/// The host and port of a server; `None` if its URL is not clear.
fn target(server: &McpServer) -> Option<Target> {
    let url: Uri = server.url.parse().ok()?;
    let port = match url.port_u16() {
        Some(port) => port,
        None if url.scheme_str() == Some("https") => 443,
        None => 80,
    };
    let port = NonZeroU16::new(port)?;
    Some(Target::new(Host::parse(url.host()?).ok()?, port))
}
