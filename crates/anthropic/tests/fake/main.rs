//! The fake of the Messages service: over plain sockets, with our client, and with the official SDK.
//!
//! The SDK's interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`; that of the beta profile's SDK is `CONJURE_ORACLE_PYTHON_BETA`. Without
//! `anthropic` in them those tests say so and pass, unless `CONJURE_TEST_REQUIRE=all`.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod answers;
mod checks;
mod compaction;
mod container;
mod faults;
mod hosted;
mod hosted_oracle;
mod hosting;
mod oracle;
mod runner;
mod support;
mod sync;
