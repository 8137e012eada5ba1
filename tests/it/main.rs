//! Whole-system tests, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

#[path = "../../crates/sandbox/tests/support/processes.rs"]
#[expect(dead_code, reason = "others' tests need more of it")]
mod processes;
#[path = "../../crates/sandbox/tests/support/rerun.rs"]
#[expect(dead_code, reason = "others' tests need more of it")]
mod rerun;
mod support;

mod architecture;
mod commands;
mod conformance;
#[cfg(feature = "docker")]
mod containers;
mod guide;
mod library;
mod live_model;
mod runtime;
mod skill_tools;
