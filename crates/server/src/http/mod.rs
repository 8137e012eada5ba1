//! HTTP: connections, what every request passes, and error bodies.

mod body;
mod connection;
mod error;
mod error_sources;
mod origin;
mod request_scope;

pub(crate) use body::{Body, RawQuery};
pub(crate) use connection::{Connections, accept};
pub use error::ApiError;
pub(crate) use request_scope::{method_not_allowed, not_found, request_scope};
