//! Containers as a kind of sandbox, for the conformance suite.

use conjure_sandbox::Connector;

use crate::container_fixture::{ContainerFixture, apart};
use crate::support::{Kind, first_in_namespace};

/// Containers of a small Debian.
pub(crate) struct Containers(pub(crate) ContainerFixture);

impl Kind for Containers {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(self.0.connector())
    }

    fn has_programs_of_machine(&self) -> bool {
        false
    }

    fn maps_owners(&self) -> bool {
        // Where commands are the workspace's owner, all is as it was.
        !rustix::process::geteuid().is_root()
    }

    fn guest(&self, pid: i32, _: u32) -> i32 {
        first_in_namespace(pid)
    }

    fn leftovers_of(&self, host: u32) -> Vec<String> {
        apart(async {
            let swept = self.0.connector().sweep().await.unwrap();
            assert!(swept.failures.is_empty(), "{:?}", swept.failures);
            let all = self.0.labelled("conjure.owner").await;
            let owners = all.into_iter().filter_map(|found| found.labels?.remove("conjure.owner"));
            owners.filter(|owner| owner.contains(&format!("-{host}-"))).collect()
        })
    }
}

impl Drop for Containers {
    /// The sandboxes of the suite go with their runtime, which is later; the image must not wait for them.
    fn drop(&mut self) {
        self.0.remove_all();
    }
}
