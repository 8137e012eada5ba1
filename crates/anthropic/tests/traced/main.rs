//! What is traced. Alone in its process: what `tracing` caches of a call site is one for all threads, and a test that nobody
//! listens to would have it cached that nobody does.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

#[path = "../wire/clock.rs"]
#[expect(dead_code, reason = "it has what the other tests need, too")]
mod clock;
#[path = "../wire/events.rs"]
#[expect(dead_code, reason = "it has what the other tests need, too")]
mod events;
#[path = "../wire/server.rs"]
#[expect(dead_code, reason = "it has what the other tests need, too")]
mod server;
#[path = "../wire/support.rs"]
#[expect(dead_code, reason = "it has what the other tests need, too")]
mod support;
mod telemetry;
