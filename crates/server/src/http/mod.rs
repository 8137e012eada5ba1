//! HTTP: connections, what every request passes, and error bodies.

mod body;
mod connection;
mod error;
mod origin;
mod query;
mod request_id;
mod request_scope;

pub(crate) use body::JsonBody;
pub(crate) use connection::{Connections, accept};
pub use error::ApiError;
pub(crate) use query::QueryPairs;
pub(crate) use request_scope::{method_not_allowed, not_found, request_scope};
