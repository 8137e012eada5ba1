//! The server: offers skills and the tools of a sandbox to clients that speak MCP, over a pair of streams or Streamable HTTP.

mod agent_tasks;
mod client;
mod handler;
mod host;
mod http_service;
mod skill_files;
mod streams;
mod tools;

pub use client::ServedClient;
pub use host::{AgentFuture, AgentRunner, ProgressFn, ToolFuture, ToolHost};
pub use http_service::{HttpService, SESSION_HEADER};
pub use streams::serve;
