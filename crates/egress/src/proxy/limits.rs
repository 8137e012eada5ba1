//! The limits of a connection: timeouts and buffer sizes.

use std::time::Duration;

/// The limits of each connection through the proxy.
///
/// A connection needs memory for one head or one handshake, and for two buffers. While a request and its response are
/// both read, it needs memory for two heads. With the defaults a relaying connection needs about 50 KiB, however much
/// data it relays.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyLimits {
    /// Until a connection gets a slot among the open ones. 10 s by default.
    pub slot_timeout: Duration,
    /// Until the client's request is complete: an HTTP head, or the greeting and request of SOCKS. 30 s by default.
    pub request_timeout: Duration,
    /// Until a name is resolved. 10 s by default.
    pub resolve_timeout: Duration,
    /// Until one of its addresses accepts the connection. 20 s by default.
    pub connect_timeout: Duration,
    /// From the first byte of a TLS handshake to the end of its first message. 10 s by default.
    pub handshake_timeout: Duration,
    /// The time without data in either direction, including the wait for a response. 5 min by default.
    pub idle_timeout: Duration,
    /// Until the client has read a refusal and closed the connection. 5 s by default.
    pub close_timeout: Duration,
    /// The maximum length of the head of an HTTP request or response, in bytes. 64 KiB by default.
    pub max_head_bytes: usize,
    /// The maximum length of the first message of a TLS handshake with its framing, in bytes. 32 KiB by default.
    pub max_handshake_bytes: usize,
    /// The number of bytes that are read at once, in each direction. 16 KiB by default, at least 1 KiB.
    pub buffer_bytes: usize,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            slot_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(20),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            close_timeout: Duration::from_secs(5),
            max_head_bytes: 64 << 10,
            max_handshake_bytes: 32 << 10,
            buffer_bytes: 16 << 10,
        }
    }
}
