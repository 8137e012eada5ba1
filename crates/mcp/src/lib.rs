//! MCP servers as tools of a session.
//!
//! A server is a program in a sandbox of its own, or a service that is reached by HTTP. `McpServers` (feature `client`) connects to the servers of a session,
//! lists their tools and is their `ToolSource`. A server that ends is started again by the next call.
//!
//! The other way round, `server` (feature `server`) gives skills and a sandbox to clients that speak MCP.
//!
//! The types of the SDK (`rmcp`) stay in this crate.

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
