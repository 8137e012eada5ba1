//! Whole-system tests with containers as sandboxes: those of `tests/it` that show the same of every kind of sandbox, and those
//! that only containers have.
//!
//! Where no engine answers the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

#[path = "../../../crates/sandbox/tests/support/again.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod again;
#[path = "../support/engine.rs"]
mod engine;
#[path = "../support/image.rs"]
mod image;
#[path = "../support/own_engine.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod own_engine;
#[path = "../../../crates/sandbox/tests/support/processes.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod processes;
#[path = "../../it/support/mod.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;

mod container_runs;
mod containers;
#[path = "../../it/runtime_bed.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod runtime_bed;
#[path = "../../it/runtime_breakers.rs"]
#[expect(dead_code, reason = "its other tests need it")]
mod runtime_breakers;
#[path = "../../it/runtime_canaries.rs"]
mod runtime_canaries;
#[path = "../../it/runtime_cancelled.rs"]
#[expect(unused_imports, reason = "its other tests need it")]
mod runtime_cancelled;
mod runtime_engines;
#[path = "../../it/runtime_fetch.rs"]
#[expect(dead_code, unused_imports, reason = "its other tests need it")]
mod runtime_fetch;
#[path = "../../it/runtime_halts.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod runtime_halts;
#[path = "../../it/runtime_pools.rs"]
#[expect(dead_code, unused_imports, reason = "its other tests need it")]
mod runtime_pools;
#[path = "../../it/runtime_programs.rs"]
mod runtime_programs;
#[path = "../../it/runtime_sandboxes.rs"]
#[expect(dead_code, unused_imports, reason = "its other tests need it")]
mod runtime_sandboxes;
#[path = "../../it/runtime_shutdown.rs"]
mod runtime_shutdown;
#[path = "../../it/runtime_spares.rs"]
#[expect(unused_imports, reason = "its other tests need it")]
mod runtime_spares;
#[path = "../../it/runtime_turns.rs"]
mod runtime_turns;

use processes::{descendants, is_alive, processes, signal};
