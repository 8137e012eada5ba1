//! The host side of the frame protocol: many calls, and the guest's tunnels, over one byte stream.
//!
//! [`multiplexer`] is the protocol as a pure state machine, [`shared`] shares it between calls and tasks, and [`tasks`]
//! moves the bytes and ends the guest.

mod channel;
mod handshake;
mod multiplexer;
mod shared;
mod tasks;
mod tunnel_stream;
mod tunnels;
mod violation;

pub(crate) use handshake::{HandshakeError, shake_hands};
pub(crate) use shared::{Call, Event, GRACE, SharedMux, TunnelPolicy};
pub(crate) use tasks::run_tasks;
pub use tunnel_stream::TunnelStream;

#[cfg(test)]
mod tests;
