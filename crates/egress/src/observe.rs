//! Who is told of what passes and of what is refused. Everything is also a `tracing` event.

use std::fmt;
use std::net::SocketAddr;

use crate::refusal::Refusal;
use crate::target::Target;

/// Is told of what passes and of what is refused, as it happens; must not block.
pub trait Observe: Send + Sync + fmt::Debug {
    /// Something was refused. The client has not been told yet.
    fn refused(&self, refusal: &Refusal);

    /// A connection to `target` stands, at `address`. What it carries may still be refused.
    fn connected(&self, target: &Target, address: SocketAddr) {
        let _ = (target, address);
    }
}

/// Is told and does nothing: the `tracing` events are enough.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observe for Unobserved {
    fn refused(&self, _refusal: &Refusal) {}
}
