//! Starts the servers of a session.

use std::sync::Arc;

use conjure_actors::executors::SupervisedExecutorBuilder;
use conjure_actors::supervision::Failure;
use conjure_base::{Redactor, TenantId};
use conjure_mcp::{McpServer, McpServers, Sampler};
use conjure_sandbox::Executor;

use super::server_parts::{ServerParts, Sharing};
use super::tenant_servers::TenantServers;

/// Starts the servers of a session in the background. Large results go to files in the sandbox of the session's tools.
/// `sampler` serves those servers that may ask the session's model.
pub(in crate::runtime::session) async fn start_servers(
    parts: Vec<ServerParts>,
    (tenant, shared): (&TenantId, Option<&TenantServers>),
    executors: &SupervisedExecutorBuilder,
    files: Option<Arc<dyn Executor>>,
    redactor: &Redactor,
    sampler: &Arc<dyn Sampler>,
) -> Result<Arc<McpServers>, Failure> {
    let mut servers: Vec<Arc<McpServer>> = Vec::with_capacity(parts.len());
    for mut part in parts {
        let sharing = std::mem::replace(&mut part.sharing, Sharing::Own);
        let may_sample = part.spec.sampling && matches!(sharing, Sharing::Own);
        part.sampler = may_sample.then(|| Arc::clone(sampler));
        servers.push(match (sharing, part.source.take(), shared) {
            (Sharing::Live(server), _, _) => server,
            (Sharing::Shared, Some(source), Some(shared)) => {
                shared.get_or_start(tenant, part, source, executors).await?
            }
            (_, Some(source), _) => {
                let id = format!("mcp-{}", part.spec.name);
                part.server(Some(Arc::new(executors.supervise_additional(&id, source)?))).into()
            }
            (_, None, _) => part.server(None).into(),
        });
    }
    Ok(Arc::new(McpServers::new(servers, files, redactor)))
}
