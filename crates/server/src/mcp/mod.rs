//! The clients of the MCP server: their offers, sandboxes and sessions.

mod clients;
mod new_client;
mod open_request;

pub(crate) use clients::{McpClients, keep_sweeping};
pub(crate) use new_client::new_client;
pub(crate) use open_request::OpenRequest;
