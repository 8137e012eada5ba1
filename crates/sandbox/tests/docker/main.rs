//! Containers from the host's side, against the real engine.
//!
//! Where none answers the tests say so and pass, unless `CONJURE_REQUIRE_DOCKER=1` is set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests fail by panic, and say what they skip"
)]

mod bad_engines;
mod fake;
mod gate;
mod hardening;
mod images;
mod layout;
mod leftovers;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "it has what other kinds need, too")]
mod support;
mod world;

use conjure_sandbox::Connector;
use support::{Kind, first_in_namespace};
use world::{World, apart, engine};

/// Containers of a small Debian.
struct DockerKind(World);

impl Kind for DockerKind {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(self.0.connector())
    }

    fn maps_owners(&self) -> bool {
        // Where commands are the workspace's owner, all is as it was.
        !rustix::process::geteuid().is_root()
    }

    fn guest(&self, pid: i32, _: u32) -> i32 {
        first_in_namespace(pid)
    }

    fn left_by(&self, host: u32) -> Vec<String> {
        apart(async {
            let swept = self.0.connector().sweep().await.unwrap();
            assert!(swept.failures.is_empty(), "{:?}", swept.failures);
            let options = bollard::query_parameters::ListContainersOptionsBuilder::new().all(true).build();
            let all = engine().await.list_containers(Some(options)).await.unwrap();
            let owners = all.into_iter().filter_map(|found| found.labels?.remove("conjure.owner"));
            owners.filter(|owner| owner.contains(&format!("-{host}-"))).collect()
        })
    }
}

impl Drop for DockerKind {
    /// The sandboxes of the suite go with their runtime, which is later; the image must not wait for them.
    fn drop(&mut self) {
        self.0.remove_all();
    }
}

/// The kind, or the end of a test that has no engine.
macro_rules! available {
    () => {
        match World::new() {
            Some(world) => DockerKind(world),
            None => return,
        }
    };
}

conformance! { every: available!() }
conformance! { isolated: available!() }
conformance! { usable: available!() }
