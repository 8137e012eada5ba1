//! How messages travel to a server: by the standard streams of a program, or by HTTP.

pub(in crate::client) mod http_transport;
pub(in crate::client) mod process_transport;
pub(in crate::client) mod startup_answers;
