//! Tracing output. The test runs alone in its process: `tracing` caches the interest in a call site for all threads, so a test
//! without
//! a subscriber would disable it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

#[path = "../wire/clock.rs"]
#[expect(dead_code, reason = "other test programs use the rest of the module")]
mod clock;
#[path = "../wire/events.rs"]
#[expect(dead_code, reason = "other test programs use the rest of the module")]
mod events;
#[path = "../wire/server.rs"]
#[expect(unused_imports, reason = "other test programs use the rest of the module")]
mod server;
#[path = "../wire/support.rs"]
#[expect(dead_code, reason = "other test programs use the rest of the module")]
mod support;
mod telemetry;
