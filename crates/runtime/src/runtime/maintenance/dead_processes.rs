//! Maintenance tasks that remove what other processes leave behind when they die.

use std::sync::Arc;

use conjure_actors::supervision::Failure;

use crate::runtime::error::RuntimeError;
use crate::runtime::maintenance::context::MaintenanceContext;
use crate::runtime::sweep::{mark_swept, sweep_cgroups, sweep_dirs};
use crate::runtime::task_set::run_blocking;

/// Removes what processes left behind that died since the last run. Returns how many processes died.
pub(super) async fn sweep_dead_processes(context: Arc<MaintenanceContext>) -> Result<u64, Failure> {
    let MaintenanceContext { home, process_lock, engines, .. } = &*context;
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
}

/// Removes containers of dead processes. This includes processes with another data directory, and containers that could
/// not be removed before. Returns how many containers were removed.
#[cfg(feature = "docker")]
pub(super) async fn sweep_containers(context: Arc<MaintenanceContext>) -> Result<u64, Failure> {
    Ok(context.engines.sweep(&context.home).await)
}
