//! The host's side of the frame protocol: many calls, and the guest's tunnels, over one byte stream.
//!
//! [`multiplexer`] is the protocol as a pure state machine, [`link`] shares it between calls and tasks, and
//! [`supervisor`] holds the tasks that move the bytes and the guard that ends the guest.

mod channel;
mod handshake;
mod link;
mod multiplexer;
mod supervisor;
mod tunnel_stream;
mod tunnels;

pub(crate) use handshake::{Failed, shake_hands};
pub(crate) use link::{Call, Event, Link, Tunnelling};
pub(crate) use supervisor::{GRACE, supervise};
pub use tunnel_stream::TunnelStream;

#[cfg(test)]
mod tests;
