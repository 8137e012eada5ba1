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
#[path = "../../../crates/sandbox/tests/support/rerun.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod rerun;
#[path = "../../it/support/mod.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;

mod container_runs;
mod containers;
mod mcp_runners;
mod mcp_servers;
mod mcp_shared;
mod runtime_engines;

/// The tests of `tests/it/runtime` that hold for every kind of sandbox.
#[path = "../../it/runtime"]
mod runtime {
    #[expect(dead_code, reason = "other tests need more of it")]
    pub(crate) mod fixture;
    #[expect(dead_code, reason = "other tests need more of it")]
    pub(crate) mod open_failpoints;
    pub(crate) mod programs;
    mod shutdown;

    mod network {
        #[expect(dead_code, unused_imports, reason = "its other tests need it")]
        pub(crate) mod fetch;
    }

    mod sandboxes {
        #[expect(dead_code, unused_imports, reason = "its other tests need it")]
        pub(crate) mod pools;
        #[expect(dead_code, unused_imports, reason = "its other tests need it")]
        mod replaced;
        #[expect(unused_imports, reason = "its other tests need it")]
        mod warm_sandboxes;
    }

    mod tenants {
        mod isolation;
    }

    mod turns {
        mod basics;
        #[expect(unused_imports, reason = "its other tests need it")]
        mod cancellation;
        #[expect(dead_code, reason = "its other tests need it")]
        mod limits;
    }
}

use processes::{descendants, is_alive, processes, signal};
