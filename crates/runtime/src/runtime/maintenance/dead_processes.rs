//! Maintenance tasks that remove what other processes leave behind when they die.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::maintenance::MaintenanceTask;
use conjure_actors::supervision::Failure;
use conjure_base::Deadline;
use futures_util::future::BoxFuture;

use crate::runtime::error::RuntimeError;
use crate::runtime::maintenance::context::MaintenanceContext;
use crate::runtime::sweep::{mark_swept, sweep_cgroups, sweep_dirs};
use crate::runtime::task_set::run_blocking;

/// Removes what processes left behind that died since the last run.
pub(super) struct SweepDeadProcesses(Arc<MaintenanceContext>);

impl SweepDeadProcesses {
    pub(super) const fn new(context: Arc<MaintenanceContext>) -> Self {
        Self(context)
    }
}

impl MaintenanceTask for SweepDeadProcesses {
    fn name(&self) -> &'static str {
        "dead-hosts"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Returns how many processes died.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async {
            let MaintenanceContext { home, process_lock, engines, .. } = &*self.0;
            let Some(process_lock) = process_lock else { return Ok(0) };
            let (lock, data) = (Arc::clone(process_lock), Arc::clone(home));
            let scan = move || lock.scan().map_err(|error| RuntimeError::data(data.path(), &error));
            let dead = run_blocking("looking for dead processes", scan).await?;
            let count = dead.count();
            if count > 0 {
                sweep_dirs(home).await?;
                sweep_cgroups().await?;
                engines.sweep(home).await;
                mark_swept(Arc::clone(process_lock), dead).await?;
            }
            Ok(count as u64)
        })
    }
}

/// Removes containers of dead processes. This includes processes with another data folder, and containers that could
/// not be removed before.
#[cfg(feature = "docker")]
pub(super) struct SweepContainers(Arc<MaintenanceContext>);

#[cfg(feature = "docker")]
impl SweepContainers {
    pub(super) const fn new(context: Arc<MaintenanceContext>) -> Self {
        Self(context)
    }
}

#[cfg(feature = "docker")]
impl MaintenanceTask for SweepContainers {
    fn name(&self) -> &'static str {
        "containers"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// Returns how many containers were removed.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async { Ok(self.0.engines.sweep(&self.0.home).await) })
    }
}
