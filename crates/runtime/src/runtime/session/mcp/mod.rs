//! The MCP servers of a session: what each of them may see, its sandbox, and the tools that come of it.

mod program_files;
mod required_servers;
mod server_sandboxes;

pub(super) use required_servers::RequiredServersHook;
pub(super) use server_sandboxes::{ServerParts, secrets, start_servers};
