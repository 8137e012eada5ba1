//! Clearing up, at the start, after hosts that are dead: what their sandboxes had on the disk, their control groups and their
//! containers.

use std::sync::Arc;
use std::time::Duration;

use conjure_sandbox::Cgroups;
#[cfg(feature = "docker")]
use conjure_sandbox::{SandboxError, SweptContainers};

use super::error::RuntimeError;
use super::home::Home;
use super::hosts::{Dead, Presence};
use super::options::RuntimeOptions;
use super::outfit::blocking;
#[cfg(feature = "docker")]
use crate::config::ExecutorKind;

/// A container engine that does not answer by then is asked again with the first container.
const ENGINE: Duration = Duration::from_secs(15);

/// Removes what dead hosts have left in the tenants' folders: opening one does it.
pub(super) async fn sweep_folders(home: &Arc<Home>) -> Result<(), RuntimeError> {
    let home = Arc::clone(home);
    blocking("the sweep of the tenants' folders", move || {
        for tenant in home.tenants() {
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

/// Removes the containers of dead hosts, from every engine of which sessions have or had some: the configuration's, and those of
/// the host's own connectors.
#[cfg(feature = "docker")]
pub(super) async fn sweep_containers(options: &RuntimeOptions, home: &Arc<Home>) {
    let looking = Arc::clone(home);
    let had_some = blocking("looking for containers", move || Ok(looking.had_containers())).await;
    let is_used = options.config.executor() == ExecutorKind::Docker || had_some.unwrap_or(true);
    if is_used && let Ok(engine) = options.config.container_engine() {
        told(engine.sweep()).await;
    }
    for docker in &options.engines {
        told(docker.sweep()).await;
    }
}

#[cfg(feature = "docker")]
async fn told(sweep: impl Future<Output = Result<SweptContainers, SandboxError>>) {
    match tokio::time::timeout(ENGINE, sweep).await {
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
pub(super) async fn sweep_containers(_: &RuntimeOptions, _: &Arc<Home>) {
    let _ = ENGINE;
}
