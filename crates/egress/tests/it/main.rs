//! The proxy over real sockets: real servers on loopback behind a resolver of the test's, real and hand-made clients.
//!
//! Loopback is what the tests allow by range, one address of it; everything else is as in production. Nothing here
//! leaves the machine: every other address is refused before it is dialled.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod bounds;
mod clients;
mod drops;
mod plain;
mod rebinding;
mod refused;
mod support;
mod tls;
mod tunnels;
