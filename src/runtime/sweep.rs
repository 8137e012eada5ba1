//! Clearing up, at the start, after hosts that are dead: what their sandboxes had on the disk, their control groups and their
//! containers.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_sandbox::Cgroups;

use super::error::RuntimeError;
use super::home::Home;
use super::hosts::{Dead, Presence};
use super::outfit::blocking;
use crate::config::Config;
#[cfg(feature = "docker")]
use crate::config::ExecutorKind;

/// A container engine that does not answer by then is asked again with the first container.
const ENGINE: Duration = Duration::from_secs(15);

/// Removes what dead hosts have left in the tenants' folders: opening one does it.
pub(super) async fn sweep_folders(home: &Arc<Home>) -> Result<(), RuntimeError> {
    let home = Arc::clone(home);
    blocking("the sweep of the tenants' folders", move || {
        for entry in std::fs::read_dir(home.path().join("tenants")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(tenant) = name.to_str().and_then(|name| TenantId::new(name).ok()) else { continue };
            // One that cannot be opened is told to whoever needs it.
            if let Err(error) = home.tenant(&tenant) {
                tracing::warn!(%tenant, %error, "what dead hosts left of a tenant is not removed");
            }
        }
        Ok(())
    })
    .await
}

/// Removes the control groups of dead hosts, and kills what is still in them.
pub(super) async fn sweep_groups() -> Result<(), RuntimeError> {
    let sweeping = || {
        let removed = Cgroups::detect().sweep();
        tracing::debug!(removed, "removed control groups of dead hosts");
        Ok(())
    };
    blocking("the sweep of control groups", sweeping).await
}

/// What these left is swept. Where that cannot be noted, the next start sweeps once more.
pub(super) async fn bury(presence: Arc<Presence>, dead: Dead) -> Result<(), RuntimeError> {
    blocking("the note of who is dead", move || {
        if let Err(error) = presence.bury(&dead) {
            tracing::debug!(%error, "dead hosts are not marked as such");
        }
        Ok(())
    })
    .await
}

/// Removes the containers of dead hosts, where the configuration has containers.
#[cfg(feature = "docker")]
pub(super) async fn sweep_containers(config: &Config) {
    if config.executor() != ExecutorKind::Docker {
        return;
    }
    let Ok(engine) = config.container_engine() else { return };
    match tokio::time::timeout(ENGINE, engine.sweep()).await {
        Ok(Ok(swept)) => {
            if swept.removed > 0 {
                tracing::info!(removed = swept.removed, "removed containers of dead hosts");
            }
            for error in &swept.failures {
                tracing::warn!(%error, "a container of a dead host cannot be removed");
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, "containers of dead hosts are not looked for"),
        Err(_) => {
            tracing::warn!("the container engine did not answer; containers of dead hosts are not looked for")
        }
    }
}

#[cfg(not(feature = "docker"))]
pub(super) async fn sweep_containers(_: &Config) {
    let _ = ENGINE;
}
