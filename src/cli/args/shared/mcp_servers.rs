//! The options that name the MCP servers of a session.

use std::path::PathBuf;

use conjure::config::McpServerSpec;

use crate::cli::args::shared::values::parse_mcp_server;

/// The MCP servers of a session.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct McpServerArgs {
    /// An MCP server whose tools the model has: `NAME=COMMAND` runs a program in a sandbox of its own, `NAME=URL` asks a service. The first model
    /// call waits for its tools. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND|URL", value_parser = parse_mcp_server)]
    pub(crate) mcp: Vec<McpServerSpec>,
    /// A file of MCP servers, in the form of `.mcp.json`; may be repeated. Its tools are added when the servers have started.
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp_config: Vec<PathBuf>,
}
