//! The Managed Agents API over HTTP, on a [`Runtime`](conjure_runtime::Runtime).
//!
//! [`Server::bind`] listens, and [`Server::serve`] answers requests until it is stopped. A request passes through these files in order:
//!
//! - `http/connection` accepts the connection.
//! - `http/request_scope` adds the id, the caller and the audit line.
//! - `routes` finds the handler.
//!
//! Handlers return errors as [`ApiError`], whose body is exactly that of the API.
//!
//! State: only open connections. All rows are in the runtime's journal, so a crash loses nothing that was answered.

mod access;
mod events;
mod expiry;
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
