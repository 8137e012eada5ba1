//! Clearing up after hosts that are dead, at the start and in the background: what their sandboxes had on the disk, their control groups and their
//! containers.

use std::sync::Arc;
#[cfg(feature = "docker")]
use std::time::Duration;

use conjure_sandbox::Cgroups;
#[cfg(feature = "docker")]
use conjure_sandbox::{ContainerEngine, SandboxError, SweptContainers};

use super::error::RuntimeError;
use super::home::Home;
use super::hosts::{Dead, Presence};
use super::options::RuntimeOptions;
use super::outfit::blocking;
use super::pools::Pools;
use super::tenants::Gone;
#[cfg(feature = "docker")]
use crate::config::ExecutorKind;

/// A container engine that does not answer by then is asked again with the first container.
#[cfg(feature = "docker")]
const ENGINE: Duration = Duration::from_secs(15);

/// Removes what dead hosts have left in the tenants' folders, and contents that nobody used for a month. How many folders there are,
/// but for those of tenants that are being deleted.
pub(super) async fn tidy_folders(home: &Arc<Home>) -> Result<u64, RuntimeError> {
    let home = Arc::clone(home);
    blocking("the sweep of the tenants' folders", move || {
        let (mut tidied, gone) = (0, Gone::of(home.path()));
        for tenant in home.tenants() {
            if gone.check(&tenant).is_err() {
                continue;
            }
            match home.tidy(&tenant) {
                Ok(true) => tidied += 1,
                // It was deleted meanwhile.
                Ok(false) => {}
                // One that cannot be opened is told to whoever needs it.
                Err(error) => {
                    tracing::warn!(%tenant, %error, "what dead hosts left of a tenant is not removed");
                }
            }
        }
        if let Err(error) = Pools::sweep(home.path()) {
            tracing::warn!(%error, "what dead hosts left of spares is not removed");
        }
        Ok(tidied)
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

/// The engines of which sessions have or had containers: the configuration's, and those of the host's own connectors.
#[cfg(feature = "docker")]
pub(super) struct Engines {
    /// The configuration names containers.
    is_default: bool,
    own: Option<ContainerEngine>,
    others: Vec<conjure_sandbox::Docker>,
}

#[cfg(feature = "docker")]
impl Engines {
    pub(super) fn of(options: &RuntimeOptions) -> Self {
        Self {
            is_default: options.config.executor() == ExecutorKind::Docker,
            own: options.config.container_engine().ok(),
            others: options.engines.clone(),
        }
    }

    /// Removes the containers of dead hosts. How many were removed; what keeps one from being is told.
    pub(super) async fn sweep(&self, home: &Arc<Home>) -> u64 {
        let looking = Arc::clone(home);
        let had_some = blocking("looking for containers", move || Ok(looking.had_containers())).await;
        let mut removed = 0;
        if let Some(engine) = &self.own
            && (self.is_default || had_some.unwrap_or(true))
        {
            removed += told(engine.sweep()).await;
        }
        for docker in &self.others {
            removed += told(docker.sweep()).await;
        }
        removed
    }
}

#[cfg(feature = "docker")]
async fn told(sweep: impl Future<Output = Result<SweptContainers, SandboxError>>) -> u64 {
    match tokio::time::timeout(ENGINE, sweep).await {
        Ok(Ok(swept)) => {
            if swept.removed > 0 {
                tracing::info!(removed = swept.removed, "removed containers of dead hosts");
            }
            for error in &swept.failures {
                tracing::warn!(%error, "a container of a dead host cannot be removed");
            }
            return swept.removed as u64;
        }
        Ok(Err(error)) => tracing::warn!(%error, "containers of dead hosts are not looked for"),
        Err(_) => {
            tracing::warn!(
                "the container engine did not answer; containers of dead hosts are not looked for"
            );
        }
    }
    0
}

/// Without containers, there are none.
#[cfg(not(feature = "docker"))]
pub(super) struct Engines;

#[cfg(not(feature = "docker"))]
impl Engines {
    pub(super) const fn of(_: &RuntimeOptions) -> Self {
        Self
    }

    #[expect(clippy::unused_async, reason = "with containers there is something to wait for")]
    pub(super) async fn sweep(&self, _: &Arc<Home>) -> u64 {
        0
    }
}
