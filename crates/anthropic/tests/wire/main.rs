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
mod hosted_oracle;
mod limits;
mod oracle;
mod outputs;
mod requests;
mod retries;
mod server;
mod support;
mod sync;
mod tls;
mod transfers;
