//! The client with a wire of a few lines, against a small service of our own, over loopback.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod bad_input;
mod errors;
mod requests;
mod server;
mod text_wire;
