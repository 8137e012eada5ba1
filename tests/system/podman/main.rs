//! Containers from the host's side, against a service of Podman that the tests start for themselves and that goes with them:
//! what `tests/docker` shows of Docker Engine, as far as engines are alike.
//!
//! Where there is no `podman` the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests fail by panic, and say what they skip"
)]

mod built;
#[path = "../../../crates/sandbox/tests/network/clients.rs"]
mod clients;
#[path = "../docker/connector_fixture.rs"]
mod connector_fixture;
#[path = "../docker/container_fixture.rs"]
mod container_fixture;
mod engine;
#[path = "../docker/hardening.rs"]
mod hardening;
#[path = "../docker/images.rs"]
mod images;
mod inspected;
#[path = "../../../crates/sandbox/tests/network/isolation.rs"]
mod isolation;
#[path = "../docker/kind.rs"]
mod kind;
#[path = "../docker/layout.rs"]
mod layout;
#[path = "../docker/leftovers.rs"]
mod leftovers;
mod names;
#[expect(dead_code, reason = "of the servers and names there, some are used here")]
#[path = "../../../crates/egress/tests/it/support.rs"]
mod outside;
mod partial_containers;
mod rootless;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other kinds of sandboxes use the rest of the module")]
mod support;
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
