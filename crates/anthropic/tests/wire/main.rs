//! The client against a small service of our own, over loopback.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod clock;
mod drops;
mod events;
mod failures;
mod hosted;
mod limits;
mod oracle;
mod requests;
mod retries;
mod server;
mod support;
mod tls;
