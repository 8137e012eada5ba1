//! Whole-system tests, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod conformance;
mod house;
