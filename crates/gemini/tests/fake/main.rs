//! Our client and the fake of the Gemini service: together, and each with the official SDK.
//!
//! The SDK's interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Without `google-genai` in it those tests say so and pass, unless
//! `CONJURE_TEST_REQUIRE=all`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod calls;
mod checks;
mod faults;
mod oracle;
mod scripts;
mod support;
