//! The client: connections to servers, their tools, and the results of calls.

mod authorization;
mod connection;
mod error;
mod handler;
mod held_calls;
mod http_transport;
mod input;
mod listen;
mod listing;
mod login;
mod manifest;
mod oauth;
mod output_schema;
mod process_transport;
mod program;
mod restarts;
mod result;
mod running_calls;
mod sampling;
mod search;
mod server;
mod server_tool;
mod servers;
mod shared_server;
mod skills;
mod startup_answers;
mod tool_names;

pub use authorization::Authorize;
pub use login::{Login, LoginError, LoginOptions};
pub use oauth::{RefreshError, refresh_tokens};
pub use program::{FindProgram, ServerProgram};
pub use sampling::{Sampler, SamplingRequest};
pub use server::{McpServer, ServerState};
pub use servers::{McpServers, ServerReport};
