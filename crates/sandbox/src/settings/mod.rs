//! How a sandbox is set up: its directories, limits, network, and what it isolates.

pub(crate) mod context;
pub(crate) mod isolation;
pub(crate) mod layout;
pub(crate) mod limits;
pub(crate) mod sandbox_network;
