//! The network: fetches of URLs, and what a session may reach.

pub(crate) mod fetch;
mod session_network;
