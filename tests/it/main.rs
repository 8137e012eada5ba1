//! Whole-system tests, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod support;

mod bad_input;
mod conformance;
#[cfg(feature = "docker")]
mod containers;
mod doctor;
mod house;
#[cfg(feature = "docker")]
mod image_command;
mod library;
mod live_model;
mod run_command;
mod signals;
mod skills_command;
