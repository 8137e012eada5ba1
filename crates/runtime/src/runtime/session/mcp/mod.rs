//! The MCP servers of a session: what each server may see, its sandbox, and its tools.

#[cfg(feature = "docker")]
mod container_server;
#[cfg(not(feature = "docker"))]
mod no_containers;
mod program_files;
mod server_parts;
mod server_sandboxes;
mod session_sampler;
mod start_servers;
mod tenant_servers;
mod tool_servers_hook;
mod vault_authorization;

pub(super) use server_parts::{ServerParts, secrets};
pub(super) use start_servers::start_servers;
pub(crate) use tenant_servers::TenantServers;
pub(super) use tool_servers_hook::ToolServersHook;
pub(super) use vault_authorization::VaultAuthorization;
