//! The server: skills and the tools of a sandbox for clients that speak MCP.

mod handler;
mod host;
mod skill_files;
mod tools;

pub use handler::serve;
pub use host::{AgentFuture, AgentRunner, ProgressFn, ToolFuture, ToolHost};
