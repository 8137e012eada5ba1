//! Tunnels: channels that the guest opens, one for each connection that a command makes to the proxy's port.
//!
//! The guest knows nothing of proxies: it passes bytes between the connection and the channel. What they mean, and
//! whether anything comes of it, is the host's affair.
//!
//! ```text
//! host                                   guest
//!                                  ◄─   Tunnel#t {credit}      a connection was accepted
//! Credit#t                         ─►                          the host takes it
//!                                  ◄─   Data#t                 what the client wrote
//! Data#t, Credit#t                 ─►
//!                                  ◄─   Credit#t, Eof#t        the client writes no more
//! Eof#t                            ─►                          nor does the host
//!                                  ◄─   Done#t                 the last frame: all was delivered
//! ```
//!
//! - Numbers have the top bit set and count up by one from [`FIRST_TUNNEL`]; none is used again. After the last one
//!   the guest accepts no more.
//! - At most [`TUNNELS_MAX`] are open at a time, each from its `Tunnel` to its `Done`. Further connections wait in the
//!   backlog of the port.
//! - Each side sends `Data` on [`super::StreamId::Content`] within the credit that the other granted, and at most one
//!   `Eof` after it: a half-close.
//! - `Done` (empty) is the guest's last frame. It comes once both sides have said `Eof` and the client has all that
//!   the host sent; or at once, when the connection broke or the host sent `Cancel`. Without a former `Eof` of the
//!   guest it is a reset.
//! - `Cancel` says that the host takes nothing any more. Without a former `Eof` of the host it is a reset, and the
//!   client's connection is reset too. After an `Eof` the client still gets what was sent, and a while to close its
//!   side; what it writes is thrown away.
//! - What the host sends after a `Done` that it has not seen yet is ignored.

use serde::{Deserialize, Serialize};

/// The number of the first tunnel. Every number from here on is a tunnel's, every one below is not.
pub const FIRST_TUNNEL: u32 = 1 << 31;

/// The most tunnels that are open at a time.
pub const TUNNELS_MAX: usize = 256;

/// The most bytes of content that either side should have room for in one direction of one tunnel.
pub const TUNNEL_WINDOW: u32 = 128 * 1024;

/// That commands are to find a proxy on the loopback interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySpec {
    /// The guest listens on this port of 127.0.0.1, in the network namespace that its commands are in, before any of
    /// them runs.
    pub port: u16,
}

/// Whether a channel of this number is a tunnel.
#[must_use]
pub const fn is_tunnel(channel: u32) -> bool {
    channel >= FIRST_TUNNEL
}
