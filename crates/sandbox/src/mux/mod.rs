//! The host's side of the frame protocol: many calls over one byte stream.
//!
//! [`multiplexer`] is the protocol as a pure state machine, [`link`] shares it between calls and tasks, and
//! [`supervisor`] holds the tasks that move the bytes and the guard that ends the guest.

mod channel;
mod handshake;
mod link;
mod multiplexer;
mod supervisor;

pub(crate) use handshake::shake_hands;
pub(crate) use link::{Call, Event, Link};
pub(crate) use supervisor::{GRACE, supervise};

#[cfg(test)]
mod tests;
