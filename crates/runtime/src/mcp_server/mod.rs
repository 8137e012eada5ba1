//! What the MCP server offers to its clients: the tools of a sandbox, and agents. The server itself is in `conjure-mcp`.

mod sandbox_tools;
mod session_agents;

pub use sandbox_tools::{OpenWorkbench, SandboxTools};
pub use session_agents::SessionAgents;
