//! Whole-system tests, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

#[path = "../../crates/sandbox/tests/support/again.rs"]
#[expect(dead_code, reason = "others' tests need more of it")]
mod again;
#[path = "../../crates/sandbox/tests/support/processes.rs"]
#[expect(dead_code, reason = "others' tests need more of it")]
mod processes;
mod support;

mod approvals_command;
mod bad_data_command;
mod bad_input;
mod chat_command;
mod chat_terminal;
mod check_command;
mod circles;
mod conformance;
#[cfg(feature = "docker")]
mod containers;
mod doctor;
mod folders;
mod guide;
mod hosted_skills_command;
#[cfg(feature = "docker")]
mod image_command;
mod layering;
mod library;
mod live_model;
mod models_command;
mod public_api;
mod run_command;
mod run_hosted;
mod run_out_limit;
mod run_planted_links;
mod runtime;
mod secrets_command;
mod sessions_command;
mod signals;
mod skill_tools;
mod skills_command;
mod untrusted_text;
mod vocabulary;
