//! Tunnels: what commands connect to, and how their connections get to the host.

mod connection;
mod tunnels;

pub(crate) use tunnels::{Port, Tunnels};

use std::time::Duration;

use crate::outbox::Outbox;

/// What tunnels work with besides themselves.
#[derive(Debug)]
pub(crate) struct Cx<'a> {
    pub(crate) now: Duration,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) scratch: &'a mut [u8],
}

#[cfg(test)]
mod tests;
