//! MCP servers as tools of a session.
//!
//! A server is a program in its own sandbox, or a service that is reached over HTTP. `McpServers` (feature `client`) connects to the
//! servers of a session, lists their tools, and is their `ToolSource`. If a server ends, the next call restarts it.
//!
//! In the other direction, `server` (feature `server`) offers skills and a sandbox to clients that speak MCP.
//!
//! The types of the SDK (`rmcp`) are not part of the public API.

#[cfg(feature = "client")]
mod client;
mod config;
#[cfg(feature = "server")]
pub mod server;

#[cfg(feature = "client")]
pub use client::{
    Authorize, FindProgram, Login, LoginError, LoginOptions, McpServer, McpServers, RefreshError, Sampler,
    SamplingRequest, ServerProgram, ServerReport, ServerState, refresh_tokens,
};
pub use config::{
    AddressScope, ContainerMount, ContainerProgram, ContainerRun, HttpServer, McpConfigError, McpJson,
    McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer, VariableLookup, parse_mcp_json,
};

/// Why a value does not match a JSON Schema, as results of tools are checked. For the comparison with a complete validator.
#[cfg(feature = "test-util")]
#[must_use]
pub fn output_schema_mismatch(schema: &serde_json::Value, value: &serde_json::Value) -> Option<String> {
    client::tools::output_schema::mismatch(schema, value)
}
