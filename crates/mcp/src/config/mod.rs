//! The configuration of a server: its name, its transport, and the tools that a session may use.

mod command_line;
mod container_run;
mod expansion;
mod mcp_json;
mod spec;

pub use container_run::{ContainerMount, ContainerProgram, ContainerRun};
pub use expansion::VariableLookup;
pub use mcp_json::{McpConfigError, McpJson, parse_mcp_json};
pub use spec::{
    AddressScope, HttpServer, McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer,
};
