//! The client: connections to servers, their tools, and the results of calls.

mod calls;
mod change_subscriptions;
mod connection;
mod error;
mod find_program;
mod manifest;
mod server;
mod server_supervisor;
mod servers;
mod shared_server;
mod sign_in;
mod skills;
pub(crate) mod tools;
mod transport;

pub use calls::sampling::{Sampler, SamplingRequest};
pub use find_program::{FindProgram, ServerProgram};
pub use server::{McpServer, ServerState};
pub use servers::{McpServers, ServerReport};
pub use sign_in::authorization::Authorize;
pub use sign_in::login::{Login, LoginError, LoginOptions};
pub use sign_in::oauth::{RefreshError, refresh_tokens};
