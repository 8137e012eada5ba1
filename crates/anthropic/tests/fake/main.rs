//! The fake of the Messages service: over plain sockets, with our client, and with the official SDK.
//!
//! The SDK's interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Without `anthropic` in it those tests say so and
//! pass, unless `CONJURE_REQUIRE_ORACLES=1`.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod answers;
mod checks;
mod compaction;
mod container;
mod faults;
mod oracle;
mod runner;
mod support;
