//! The proxy over real sockets: real servers on loopback behind a static resolver, real and hand-made clients.
//!
//! The tests allow one loopback address; everything else is as in production. Nothing here
//! leaves the machine: every other address is refused before it is dialled.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod clients;
mod drops;
mod limits;
mod plain;
mod rebinding;
mod refused;
mod support;
mod tls;
mod tunnels;
