//! The guarded fetch, against real servers on loopback behind a resolver of the test's.
//!
//! Loopback is what the tests allow besides public addresses; everything else is as in production. Nothing here leaves the machine.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod bodies;
mod caching;
mod dropped;
mod guard;
mod logging;
mod response_heads;
mod support;
mod timeouts;
mod tls;
