//! Containers of an engine that shares no directories with this machine: the engine of this machine behind a TCP port, which the
//! connector takes for one elsewhere. Nothing of it knows better, so what is here works there.
//!
//! Where none answers the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests fail by panic, and say what they skip"
)]

#[path = "../docker/container_fixture.rs"]
#[expect(dead_code, reason = "the tests of this machine's engine use the rest of the module")]
mod container_fixture;
mod content_dirs;
#[path = "../docker/engine.rs"]
mod engine;
mod link;
mod lost;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other kinds of sandboxes use the rest of the module")]
mod support;
mod workspace;

use std::sync::Arc;

use conjure_sandbox::{
    Connector, DataDir, Docker, DockerOptions, ExecutionContext, OwnedWorkspace, Sandbox, SandboxError,
};
use container_fixture::{ContainerFixture, apart};
use link::Link;
use support::{Kind, PatientClock, Workspace, first_in_namespace, host, soon};

/// An engine behind a port, a data directory, and what containers are made of.
struct Remote {
    containers: ContainerFixture,
    link: Link,
    data: DataDir,
}

impl Remote {
    /// `None` where there is no engine and none is required.
    fn new() -> Option<Self> {
        let fixture = ContainerFixture::new()?;
        Some(Self {
            containers: fixture,
            link: Link::to("/var/run/docker.sock"),
            data: DataDir::temporary().unwrap(),
        })
    }

    fn options(&self) -> DockerOptions {
        DockerOptions { engine: vec![self.link.address()], ..self.containers.options() }
    }

    fn docker(&self) -> Docker {
        Docker::new(self.options(), host()).with_data(self.data.clone())
    }

    async fn open(&self, context: &ExecutionContext) -> Result<Sandbox, SandboxError> {
        Sandbox::open(&self.docker(), context, Arc::new(PatientClock), soon(120)).await
    }

    /// A sandbox, and its workspace on the host.
    async fn sandbox(&self) -> (Sandbox, OwnedWorkspace) {
        let workspace = self.data.workspace().unwrap();
        let sandbox = self.open(&ExecutionContext::new(workspace.path())).await.unwrap();
        (sandbox, workspace)
    }
}

impl Kind for Remote {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(self.docker())
    }

    fn workspace(&self) -> Workspace {
        Workspace::Private(self.data.workspace().unwrap())
    }

    fn has_programs_of_machine(&self) -> bool {
        false
    }

    fn maps_owners(&self) -> bool {
        false
    }

    fn guest(&self, pid: i32, _: u32) -> i32 {
        first_in_namespace(pid)
    }

    fn leftovers_of(&self, host: u32) -> Vec<String> {
        apart(async {
            let swept = self.docker().sweep().await.unwrap();
            assert!(swept.failures.is_empty(), "{:?}", swept.failures);
            let options = bollard::query_parameters::ListContainersOptionsBuilder::new().all(true).build();
            let all = self.containers.engine().await.list_containers(Some(options)).await.unwrap();
            let owners = all.into_iter().filter_map(|found| found.labels?.remove("conjure.owner"));
            owners.filter(|owner| owner.contains(&format!("-{host}-"))).collect()
        })
    }
}

impl Drop for Remote {
    /// The sandboxes of the suite go with their runtime, which is later; the image must not wait for them.
    fn drop(&mut self) {
        self.containers.remove_all();
    }
}

/// The kind, or the end of a test that has no engine.
macro_rules! available {
    () => {
        match Remote::new() {
            Some(remote) => remote,
            None => return,
        }
    };
}

conformance! { every: available!() }
conformance! { isolated: available!() }
conformance! { usable: available!() }
