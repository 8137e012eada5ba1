//! The Managed Agents API over HTTP, on a [`Runtime`](conjure_runtime::Runtime).
//!
//! [`Server::bind`] listens; [`Server::serve`] answers until it is told to stop. A request passes these files, in this order:
//! `http/connection` (accepting), `http/request_scope` (id, who asks, audit line), `routes` (the table), a handler.
//! What a handler refuses is an [`ApiError`], whose body is exactly that of the API.
//!
//! State: none of its own beside open connections. Rows are in the runtime's journal; a crash loses nothing that was answered.

mod access;
mod events;
mod http;
mod idempotency;
mod live_settings;
#[cfg(feature = "mcp")]
mod mcp;
mod messages;
mod metrics;
mod objects;
mod options;
mod reload;
mod routes;
mod server;
mod sessions;
mod state;

pub use access::{ApiKey, ApiKeyId, ApiKeyInfo, ApiKeyTextError, ApiKeys, ApiKeysError, NewApiKey, Scope};
pub use http::{ApiError, TlsCertificate, TlsError};
pub use metrics::Metrics;
pub use options::ServerOptions;
pub use reload::{ReloadError, ServerHandle};
pub use routes::{RouteInfo, route_table};
pub use server::{ServeError, Server};
