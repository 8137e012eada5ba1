//! `conjure mcp`: serves programs that speak MCP, and signs in at MCP servers.

#[cfg(feature = "mcp")]
mod command;
#[cfg(feature = "mcp")]
mod login;
#[cfg(not(feature = "mcp"))]
mod not_built;

#[cfg(feature = "mcp")]
pub(crate) use command::serve;
#[cfg(feature = "mcp")]
pub(crate) use login::{login, logout};
#[cfg(not(feature = "mcp"))]
pub(crate) use not_built::{login, logout, serve};
