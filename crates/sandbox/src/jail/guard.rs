//! Holds a jail: its first process, its folder, what was handed over to its user, its control group. All go with it, in
//! this order.

use std::sync::Arc;
use std::time::Duration;

use conjure_guest::protocol::{InForce, SetupFailure, Welcome};
use futures_util::future::BoxFuture;

use super::hand_back::HandedOver;
use super::remedy::{Facts, explained};
use crate::cgroup::Cgroup;
use crate::connector::{Follower, SandboxGuard};
use crate::data::DataFolder;
use crate::error::SandboxError;
use crate::guest_process::GuestProcess;
use crate::isolation::{Boundary, Isolation};
use crate::places::Shelves;
use crate::provision::Provider;

/// How long the process outside may take to end the jail, until it is killed itself. Usually it takes some
/// milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct JailGuard {
    /// The process outside, which ends with the one inside, and the one inside with it.
    process: GuestProcess,
    holdings: Holdings,
}

/// What a jail has on the host.
#[derive(Debug)]
pub(super) struct Holdings {
    /// Taken back when nothing runs any more.
    pub(super) handed_over: HandedOver,
    /// The workspace's path on the host.
    pub(super) workspace: String,
    /// What the machine's control groups and the choice of user give.
    pub(super) isolation: Isolation,
    /// Removed when nothing runs any more.
    pub(super) shelves: Shelves,
    /// Removed when nothing is in it any more. `None` once it was.
    pub(super) cgroup: Option<Cgroup>,
    /// Which may be temporary.
    #[expect(dead_code, reason = "held, and not looked at")]
    pub(super) data: DataFolder,
}

impl JailGuard {
    pub(super) const fn new(process: GuestProcess, holdings: Holdings) -> Self {
        Self { process, holdings }
    }
}

fn remove(shelves: &Shelves) {
    if let Err(error) = shelves.remove() {
        tracing::warn!(%error, "a sandbox's folder is left to be swept");
    }
}

/// Beside the runtime's threads.
async fn remove_beside(shelves: &Shelves, cgroup: Option<Cgroup>) {
    let shelves = shelves.clone();
    let removed = tokio::task::spawn_blocking(move || {
        remove(&shelves);
        drop(cgroup);
    });
    if let Err(error) = removed.await {
        tracing::warn!(%error, "a sandbox's folder is left to be swept");
    }
}

impl SandboxGuard for JailGuard {
    fn greeted(&mut self, welcome: &Welcome) -> Isolation {
        let paths = welcome.confinement.iter().flat_map(|confinement| &confinement.handed_over);
        self.holdings.handed_over.remember(paths);
        let syscalls = Boundary::enforced_if(welcome.rules.syscalls == InForce::Yes);
        let files = Boundary::enforced_if(welcome.rules.files == InForce::Yes);
        Isolation { syscalls, files, ..self.holdings.isolation }
    }

    fn provider(&self) -> Option<Arc<dyn Provider>> {
        Some(Arc::new(self.holdings.shelves.clone()))
    }

    fn follower(&self) -> Option<Arc<dyn Follower>> {
        Some(self.holdings.handed_over.follower(&self.holdings.workspace))
    }

    fn explain(&self, failure: &SetupFailure) -> SandboxError {
        explained(failure, &Facts::of_machine())
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        self.process.ended()
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // The process outside kills the one inside, and is gone when all of the jail is.
            if self.process.ask_to_end() {
                tokio::select! {
                    _ = self.process.ended() => {}
                    () = tokio::time::sleep(PATIENCE) => self.process.kill().await,
                }
            }
        })
    }

    /// The folder, too: that the process outside has ended does not say for certain that the last command inside has, a moment later.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            remove_beside(&self.holdings.shelves, None).await;
            self.holdings.handed_over.take_back().await;
        })
    }

    /// The kernel takes up to ten milliseconds for a control group, for which the next sandbox does not wait.
    fn clear(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let cgroup = self.holdings.cgroup.take();
            remove_beside(&self.holdings.shelves, cgroup).await;
        })
    }
}

impl Drop for JailGuard {
    /// Where nobody waited for the end, because the runtime goes: what follows, the folder and the control group, can
    /// only be removed when nothing runs any more.
    fn drop(&mut self) {
        if self.process.ask_to_end() {
            self.process.wait_blocking(PATIENCE);
        }
        remove(&self.holdings.shelves);
    }
}
