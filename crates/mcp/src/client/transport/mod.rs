//! The transports of messages to servers: the standard streams of a program, or HTTP.

pub(in crate::client) mod http_transport;
pub(in crate::client) mod process_transport;
pub(in crate::client) mod startup_answers;
