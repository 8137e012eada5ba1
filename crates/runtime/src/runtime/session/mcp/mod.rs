//! The MCP servers of a session: what each of them may see, its sandbox, and the tools that come of it.

#[cfg(feature = "docker")]
mod container_server;
#[cfg(not(feature = "docker"))]
mod no_containers;
mod program_files;
mod server_sandboxes;
mod tool_servers_hook;
mod vault_authorization;

pub(super) use server_sandboxes::{ServerParts, secrets, start_servers};
pub(super) use tool_servers_hook::ToolServersHook;
pub(super) use vault_authorization::VaultAuthorization;
