//! Containers from the host's side, against the real engine; their egress, too, by the tests of `tests/network`.
//!
//! Where none answers the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests fail by panic, and say what they skip"
)]

#[path = "../../../crates/sandbox/tests/network/clients.rs"]
mod clients;
mod connector_fixture;
mod container_fixture;
mod engine;
mod engine_api;
mod hardening;
mod health;
mod images;
mod inspected;
#[path = "../../../crates/sandbox/tests/network/isolation.rs"]
mod isolation;
mod kind;
mod layout;
mod leftovers;
mod orphans;
#[expect(dead_code, reason = "of the servers and names there, some are used here")]
#[path = "../../../crates/egress/tests/it/support.rs"]
mod outside;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other kinds of sandboxes use the rest of the module")]
mod support;
mod warm_sandboxes;
#[path = "../../../crates/sandbox/tests/network/web.rs"]
mod web;

use container_fixture::ContainerFixture;
use kind::Containers;

/// The kind, or the end of a test that has no engine.
macro_rules! available {
    () => {
        match ContainerFixture::new() {
            Some(fixture) => Containers(fixture),
            None => return,
        }
    };
}

conformance! { every: available!() }
conformance! { shared: available!() }
conformance! { isolated: available!() }
conformance! { isolated_and_shared: available!() }
conformance! { usable: available!() }
