//! The bounds of a connection: in time, and in memory. They never change while it lives.

use std::time::Duration;

/// The bounds of each connection through the proxy.
///
/// Its memory is at most one head (twice, while a request and its answer are both read), or one handshake, and two
/// buffers; about 50 KiB with the defaults while it relays, however much passes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// How long a connection waits for a place among those that are open. 10 s by default.
    pub place: Duration,
    /// Until the client's request is whole: an HTTP head, or the greeting and request of SOCKS. 30 s by default.
    pub request: Duration,
    /// Until a name is resolved. 10 s by default.
    pub resolve: Duration,
    /// Until one of its addresses takes the connection. 20 s by default.
    pub connect: Duration,
    /// From the first byte of a TLS handshake to the end of its first message. 10 s by default.
    pub handshake: Duration,
    /// How long nothing may move in either direction, waiting for an answer included. 5 min by default.
    pub idle: Duration,
    /// How long a client may take to read a refusal and hang up. 5 s by default.
    pub farewell: Duration,
    /// The longest head of an HTTP request or answer, in bytes. 64 KiB by default.
    pub head_bytes: usize,
    /// The longest first message of a TLS handshake with its framing, in bytes. 32 KiB by default.
    pub handshake_bytes: usize,
    /// What is read at once, in each direction, in bytes. 16 KiB by default, 1 KiB at least.
    pub buffer_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            place: Duration::from_secs(10),
            request: Duration::from_secs(30),
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(20),
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            farewell: Duration::from_secs(5),
            head_bytes: 64 << 10,
            handshake_bytes: 32 << 10,
            buffer_bytes: 16 << 10,
        }
    }
}
