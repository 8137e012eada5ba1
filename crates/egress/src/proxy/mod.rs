//! The proxy: reads the target that a client asks for, and relays data once the connection to it is made.
//!
//! | file | what it does |
//! |---|---|
//! | `limits` | timeouts and buffer sizes |
//! | `buffered` | a stream with a read buffer |
//! | `idle_timeout` | ends a connection on which no data moves |
//! | `connection` | reads the first byte of a connection and chooses the protocol |
//! | `socks` | SOCKS5 |
//! | `http` | `CONNECT`, plain requests, and responses of refusals |
//! | `read_head` | reads the head of an HTTP/1 message |
//! | `http_head`, `http_framing`, `http_body` | parse and write HTTP/1 messages |
//! | `forward` | forwards one request and its response |
//! | `tls_client_hello` | parses the first message of a TLS handshake |
//! | `tunnel` | checks the first bytes of a tunnel and relays the rest |
//! | `half_copy` | copies one direction of a tunnel |
//!
//! Each connection has its own state; dropping the future of [`serve`] drops it.

mod buffered;
mod connection;
mod half_copy;
mod http_proxy;
mod idle_timeout;
mod limits;
mod socks;
mod tls_client_hello;
mod tunnel;

pub(crate) use connection::serve;
pub use limits::ProxyLimits;
pub use tls_client_hello::{ClientHello, HelloError, HelloReader};
