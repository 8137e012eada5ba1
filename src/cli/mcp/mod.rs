//! `conjure mcp`: serves programs that speak MCP, and signs in at MCP servers.

mod command;
mod login;

pub(crate) use command::serve;
pub(crate) use login::{login, logout};
