//! Sweeps after dead processes, at the start and in the background: their directories, their control groups and their
//! containers.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
#[cfg(feature = "docker")]
use std::time::Duration;

use conjure_sandbox::Cgroups;
#[cfg(feature = "docker")]
use conjure_sandbox::{ContainerEngine, ContainerSweepReport, SandboxError};

#[cfg(feature = "docker")]
use crate::config::ExecutorKind;
use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::data::process_lock::{DeadProcesses, ProcessLock};
use crate::runtime::data::temp_data_dir;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::RuntimeOptions;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::TenantDeletions;
use crate::runtime::warm_pools::WarmPools;

/// How long to wait for a container engine. The engine is called again when the first container is created.
#[cfg(feature = "docker")]
const ENGINE_TIMEOUT: Duration = Duration::from_secs(15);

/// Removes what dead processes left in the tenants' directories, and contents that were not used for a month. Returns the
/// number of directories, without those of tenants that are being deleted.
pub(super) async fn sweep_dirs(home: &Arc<RuntimeDir>) -> Result<u64, RuntimeError> {
    let home = Arc::clone(home);
    run_blocking("the sweep of the tenants' directories", move || {
        let (mut swept, deletions) = (0, TenantDeletions::new(home.path()));
        for tenant in home.tenants() {
            if deletions.check(&tenant).is_err() {
                continue;
            }
            match home.sweep(&tenant) {
                Ok(true) => swept += 1,
                // It was deleted meanwhile.
                Ok(false) => {}
                // The next caller that needs the directory gets the error.
                Err(error) => {
                    tracing::warn!(%tenant, %error, "leftovers of dead processes in a tenant's directory were not removed");
                }
            }
        }
        if let Err(error) = WarmPools::sweep(home.path()) {
            tracing::warn!(%error, "leftovers of dead processes in the warm pools were not removed");
        }
        // Sandboxes without isolation have their directories in the system's temporary directory.
        if let Ok(found) = std::fs::metadata(home.path()) {
            temp_data_dir::sweep(&std::env::temp_dir(), found.uid());
        }
        Ok(swept)
    })
    .await
}

/// Removes the control groups of dead processes, and kills what still runs in them.
pub(super) async fn sweep_cgroups() -> Result<(), RuntimeError> {
    let sweeping = || {
        let removed = Cgroups::detect().sweep();
        tracing::debug!(removed, "removed control groups of dead processes");
        Ok(())
    };
    run_blocking("the sweep of control groups", sweeping).await
}

/// Marks these processes as swept. If that fails, the next start sweeps again.
pub(super) async fn mark_swept(
    process_lock: Arc<ProcessLock>,
    dead: DeadProcesses,
) -> Result<(), RuntimeError> {
    run_blocking("marking dead processes", move || {
        if let Err(error) = process_lock.mark_swept(&dead) {
            tracing::debug!(%error, "dead processes were not marked as swept");
        }
        Ok(())
    })
    .await
}

/// The container engines to sweep: the configuration's, and those of the embedder's own connectors.
#[cfg(feature = "docker")]
pub(super) struct Engines {
    /// Whether the configuration selects containers.
    is_default: bool,
    configured: Option<ContainerEngine>,
    others: Vec<conjure_sandbox::Docker>,
}

#[cfg(feature = "docker")]
impl Engines {
    pub(super) fn of(options: &RuntimeOptions) -> Self {
        Self {
            is_default: options.config.executor() == ExecutorKind::Docker,
            configured: options.config.container_engine().ok(),
            others: options.extra_engines.clone(),
        }
    }

    /// Removes the containers of dead processes. Returns how many were removed; errors are logged.
    pub(super) async fn sweep(&self, home: &Arc<RuntimeDir>) -> u64 {
        let data_dir = Arc::clone(home);
        let had_some = run_blocking("looking for containers", move || Ok(data_dir.had_containers())).await;
        let mut removed = 0;
        if let Some(engine) = &self.configured
            && (self.is_default || had_some.unwrap_or(true))
        {
            removed += with_logging(engine.sweep()).await;
        }
        for docker in &self.others {
            removed += with_logging(docker.sweep()).await;
        }
        removed
    }
}

#[cfg(feature = "docker")]
async fn with_logging(sweep: impl Future<Output = Result<ContainerSweepReport, SandboxError>>) -> u64 {
    match tokio::time::timeout(ENGINE_TIMEOUT, sweep).await {
        Ok(Ok(swept)) => {
            if swept.removed > 0 {
                tracing::info!(removed = swept.removed, "removed containers of dead processes");
            }
            for error in &swept.failures {
                tracing::warn!(%error, "a container of a dead process cannot be removed");
            }
            return swept.removed as u64;
        }
        Ok(Err(error)) => tracing::warn!(%error, "containers of dead processes were not searched"),
        Err(_) => {
            tracing::warn!(
                "the container engine did not respond; containers of dead processes were not looked for"
            );
        }
    }
    0
}

/// A build without containers has none to sweep.
#[cfg(not(feature = "docker"))]
pub(super) struct Engines;

#[cfg(not(feature = "docker"))]
impl Engines {
    pub(super) const fn of(_: &RuntimeOptions) -> Self {
        Self
    }

    #[expect(clippy::unused_async, reason = "with containers there is something to wait for")]
    pub(super) async fn sweep(&self, _: &Arc<RuntimeDir>) -> u64 {
        0
    }
}
