//! Tunnels: channels that the guest opens, one for each connection of a command to the proxy's port.
//!
//! The guest knows nothing about proxies: it copies bytes between the connection and the channel. The host
//! interprets them.
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
//! Rules:
//! - Numbers have the top bit set, count up by one from [`FIRST_TUNNEL`], and are never reused. After the last
//!   one, the guest accepts no more connections.
//! - At most [`TUNNELS_MAX`] tunnels are open at a time, each from its `Tunnel` to its `Done`. Further connections
//!   wait in the backlog of the port.
//! - Each side sends `Data` on [`super::StreamId::Content`] within the credit that the other side granted, and
//!   then at most one `Eof`: a half-close.
//! - `Done` (empty) is the guest's last frame. It follows when both sides have sent `Eof` and the client has
//!   received everything. It follows at once when the connection failed or the host sent `Cancel`. Without a
//!   previous `Eof` of the guest it is a reset.
//! - `Cancel` means that the host accepts nothing more. Without a previous `Eof` of the host it is a reset, and
//!   the client's connection is reset, too. After an `Eof`, the client still receives what was sent, and has a
//!   while to close its side. What it writes is dropped.
//! - The guest ignores what the host sends before it has seen a `Done`.

use serde::{Deserialize, Serialize};

/// The number of the first tunnel. All numbers from here on are tunnels, all below are not.
pub const FIRST_TUNNEL: u32 = 1 << 31;

/// The maximum number of open tunnels.
pub const TUNNELS_MAX: usize = 256;

/// The maximum number of bytes that either side should buffer in one direction of a tunnel.
pub const TUNNEL_WINDOW: u32 = 128 * 1024;

/// The proxy port for commands, on the loopback interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySpec {
    /// The guest listens on this port of 127.0.0.1, in the network namespace of its commands, before the first
    /// command runs.
    pub port: u16,
}

/// Whether a channel of this number is a tunnel.
#[must_use]
pub const fn is_tunnel(channel: u32) -> bool {
    channel >= FIRST_TUNNEL
}
