//! HTTP: connections, the processing of every request, and error bodies.

mod body;
mod connection;
mod download;
mod error;
mod error_sources;
mod form;
mod origin;
mod request_scope;
mod stall_guard;
mod tls;

pub(crate) use body::{Body, NoQuery, Path, RawQuery, limit_body_time};
pub(crate) use connection::{Connections, accept};
pub(crate) use download::download;
pub use error::ApiError;
pub(crate) use form::{Form, Part};
pub(crate) use origin::check_loopback;
pub(crate) use request_scope::{method_not_allowed, not_found, request_scope};
pub use tls::{TlsCertificate, TlsError};
