//! `conjure mcp serve`.

#[cfg(feature = "mcp")]
mod agent;
#[cfg(feature = "mcp")]
mod command;
#[cfg(not(feature = "mcp"))]
mod not_built;
#[cfg(feature = "mcp")]
mod sandbox_tools;

#[cfg(feature = "mcp")]
pub(crate) use command::serve;
#[cfg(not(feature = "mcp"))]
pub(crate) use not_built::serve;
