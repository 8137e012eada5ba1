//! The network: fetches of URLs, and the hosts that a session can reach.

pub(crate) mod fetch;
mod session_network;
