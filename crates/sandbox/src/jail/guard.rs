//! Holds a jail: its first process, what was handed over to its user, its control group, its folder. All go with it, in
//! this order.

use std::time::Duration;

use conjure_guest::protocol::{InForce, SetupFailure, Welcome};
use futures_util::future::BoxFuture;

use super::hand_back::HandedOver;
use super::remedy::{Facts, explained};
use crate::cgroup::Cgroup;
use crate::connector::SandboxGuard;
use crate::error::SandboxError;
use crate::guest_process::GuestProcess;
use crate::isolation::{Boundary, Isolation};

/// How long the process outside may take to end the jail, until it is killed itself. Usually it takes some
/// milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct JailGuard {
    /// The process outside, which ends with the one inside, and the one inside with it.
    process: GuestProcess,
    /// Taken back when nothing runs any more.
    handed_over: HandedOver,
    /// What the machine's control groups and the choice of user give.
    isolation: Isolation,
    /// Removed when nothing is in it any more.
    _cgroup: Cgroup,
}

impl JailGuard {
    pub(super) const fn new(
        process: GuestProcess,
        handed_over: HandedOver,
        isolation: Isolation,
        cgroup: Cgroup,
    ) -> Self {
        Self { process, handed_over, isolation, _cgroup: cgroup }
    }
}

impl SandboxGuard for JailGuard {
    fn greeted(&mut self, welcome: &Welcome) -> Isolation {
        let paths = welcome.confinement.iter().flat_map(|confinement| &confinement.handed_over);
        self.handed_over.remember(paths);
        let syscalls = Boundary::enforced_if(welcome.rules.syscalls == InForce::Yes);
        Isolation { syscalls, ..self.isolation }
    }

    fn explain(&self, failure: &SetupFailure) -> SandboxError {
        explained(failure, &Facts::of_machine())
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let how = self.process.ended().await;
            self.handed_over.take_back().await;
            how
        })
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
            self.handed_over.take_back().await;
        })
    }
}

impl Drop for JailGuard {
    /// Where nobody waited for the end, because the runtime goes: what follows, the control group and the folder, can
    /// only be removed when nothing runs any more.
    fn drop(&mut self) {
        if self.process.ask_to_end() {
            self.process.wait_blocking(PATIENCE);
        }
    }
}
