//! Containers when everything fails: the engine, what it consists of, the host; and its disk is full. Each test has an engine
//! of its own, which it may kill.
//!
//! Where there can be none the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod engine_processes;
mod engines;
mod hosts;
mod load;
mod queue;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other kinds of sandboxes use the rest of the module")]
mod support;

use support::own_engine as engine;
