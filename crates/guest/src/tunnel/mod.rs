//! Tunnels: the port that commands connect to, and how their connections reach the host.

mod connection;
mod tunnels;

pub(crate) use connection::TunnelContext;
pub(crate) use tunnels::{TunnelFd, Tunnels};

#[cfg(test)]
mod tests;
