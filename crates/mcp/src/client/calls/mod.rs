//! Calls of a server's tools, and the requests that the server sends while they run.

pub(in crate::client) mod handler;
pub(in crate::client) mod input;
pub(in crate::client) mod running_calls;
pub(in crate::client) mod sampling;
pub(in crate::client) mod waiting_calls;
