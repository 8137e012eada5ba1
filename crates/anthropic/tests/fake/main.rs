//! The fake of the Messages service: over plain sockets, with our client, and with the official SDK.
//!
//! The SDK's interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Without `anthropic` in it those tests say so and
//! pass, unless `CONJURE_TEST_REQUIRE=all`. The SDK of the beta profile is in `CONJURE_ORACLE_PYTHON_BETA`, if anywhere.
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
