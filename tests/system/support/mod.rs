//! What the tests of containers have in common: an engine and an image, and all that the tests of other sandboxes have.

#![expect(clippy::unwrap_used, reason = "it is a part of tests, which fail by panic")]

#[path = "../../../crates/sandbox/tests/support/mod.rs"]
mod sandboxes;

pub(crate) mod engine;
pub(crate) mod image;
pub(crate) mod own_engine;

pub(crate) use sandboxes::*;
