//! Shared support of the container tests: an engine, an image, and the support of all sandbox tests.

#![expect(clippy::unwrap_used, reason = "this is test code, which fails by panic")]

#[path = "../../../crates/sandbox/tests/support/mod.rs"]
mod sandboxes;

pub(crate) mod engine;
pub(crate) mod image;
pub(crate) mod own_engine;

pub(crate) use sandboxes::*;
