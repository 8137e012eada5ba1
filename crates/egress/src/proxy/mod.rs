//! The proxy: what a client says, until it is a target; and what passes, once a connection to it stands.
//!
//! | file | what it does |
//! |---|---|
//! | `peer` | one end of a connection: what was read and not used, and the end that writes |
//! | `activity` | notices that nothing moves any more |
//! | `conversation` | from the first byte to the protocol |
//! | `socks` | SOCKS5 |
//! | `http` | `CONNECT` and plain requests |
//! | `head`, `body` | the heads and the framing of HTTP/1 messages, pure |
//! | `exchange` | one request and its answer |
//! | `hello` | the first message of a TLS handshake, pure |
//! | `tunnel` | holds what a tunnel carries to what was asked for |
//! | `pump` | bytes from one end to the other |
//!
//! Its state is that of one connection; dropping [`serve`] drops it.

mod activity;
mod body;
mod conversation;
mod exchange;
mod head;
mod hello;
mod http;
mod peer;
mod pump;
mod socks;
mod tunnel;

pub(crate) use conversation::serve;
pub use hello::{ClientHello, HelloError, HelloReader};
