//! [`JailGuard`]: owns a jail and its host resources. It releases them in this order: the process, the directory, the
//! changed owners, the control group.

use std::sync::Arc;
use std::time::Duration;

use conjure_guest::protocol::{RuleStatus, SetupError, Welcome};
use futures_util::future::BoxFuture;

use super::ownership::OwnershipTransfer;
use super::setup_hint::{NamespaceFacts, with_hint};
use crate::cgroup::Cgroup;
use crate::connector::{SandboxGuard, WorkspaceListener};
use crate::content::ContentInstaller;
use crate::data_dir::DataDir;
use crate::error::SandboxError;
use crate::guest_process::GuestProcess;
use crate::host_dirs::ContentDirs;
use crate::settings::isolation::{Boundary, Isolation};

/// How long the outer process may take to end the jail before it is killed. Usually it takes some milliseconds.
const DROP_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct JailGuard {
    /// The outer process. When the outer or the inner process ends, the other one ends, too.
    process: GuestProcess,
    resources: JailResources,
}

/// The resources of a jail on the host.
#[derive(Debug)]
pub(super) struct JailResources {
    /// The ownership changes, which are undone once no process runs in the jail.
    pub(super) ownership: OwnershipTransfer,
    /// The workspace's path on the host.
    pub(super) workspace: String,
    /// The boundaries, from the control groups of the machine and the user of the jail.
    pub(super) isolation: Isolation,
    /// The content directories, which are removed once no process runs in the jail.
    pub(super) content_dirs: ContentDirs,
    /// The control group, which is removed when it has no processes. `None` once it was removed.
    pub(super) cgroup: Option<Cgroup>,
    /// Kept, because dropping a temporary data directory would remove it.
    #[expect(dead_code, reason = "held, and not looked at")]
    pub(super) data: DataDir,
}

impl JailGuard {
    pub(super) const fn new(process: GuestProcess, resources: JailResources) -> Self {
        Self { process, resources }
    }
}

fn remove(content_dirs: &ContentDirs) {
    if let Err(error) = content_dirs.remove() {
        tracing::warn!(%error, "a sandbox's directory was not removed; the next sweep removes it");
    }
}

/// Removes them on a blocking thread.
async fn remove_in_background(content_dirs: &ContentDirs, cgroup: Option<Cgroup>) {
    let content_dirs = content_dirs.clone();
    let removed = tokio::task::spawn_blocking(move || {
        remove(&content_dirs);
        drop(cgroup);
    });
    if let Err(error) = removed.await {
        tracing::warn!(%error, "a sandbox's directory was not removed; the next sweep removes it");
    }
}

impl SandboxGuard for JailGuard {
    fn confirmed_isolation(&mut self, welcome: &Welcome) -> Isolation {
        let paths = welcome.confinement.iter().flat_map(|confinement| &confinement.chowned_paths);
        self.resources.ownership.remember(paths);
        let syscalls = Boundary::enforced_if(welcome.rules.syscalls == RuleStatus::Enforced);
        let files = Boundary::enforced_if(welcome.rules.files == RuleStatus::Enforced);
        Isolation { syscalls, files, ..self.resources.isolation }
    }

    fn content_installer(&self) -> Option<Arc<dyn ContentInstaller>> {
        Some(Arc::new(self.resources.content_dirs.clone()))
    }

    fn workspace_listener(&self) -> Option<Arc<dyn WorkspaceListener>> {
        Some(self.resources.ownership.workspace_listener(&self.resources.workspace))
    }

    fn describe_setup_error(&self, failure: &SetupError) -> SandboxError {
        with_hint(failure, &NamespaceFacts::detect())
    }

    fn wait(&mut self) -> BoxFuture<'_, String> {
        self.process.wait()
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // The outer process kills the inner one, and ends when the whole jail has ended.
            if self.process.send_sigterm() {
                tokio::select! {
                    _ = self.process.wait() => {}
                    () = tokio::time::sleep(DROP_TIMEOUT) => self.process.kill().await,
                }
            }
        })
    }

    /// Also removes the directory. The last command may end a moment after the outer process.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            remove_in_background(&self.resources.content_dirs, None).await;
            self.resources.ownership.restore().await;
        })
    }

    /// The kernel takes up to ten milliseconds to remove a control group. The next sandbox does not wait for that.
    fn remove_leftovers(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let cgroup = self.resources.cgroup.take();
            remove_in_background(&self.resources.content_dirs, cgroup).await;
        })
    }
}

impl Drop for JailGuard {
    /// When the runtime shuts down, no task waits for the end of the jail. The directory and the control group can be
    /// removed only after the end, so this waits.
    fn drop(&mut self) {
        if self.process.send_sigterm() {
            self.process.wait_blocking(DROP_TIMEOUT);
        }
        remove(&self.resources.content_dirs);
    }
}
