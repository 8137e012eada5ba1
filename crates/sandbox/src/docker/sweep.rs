//! Removing what hosts that are dead have left: containers in every state. Their places go when the data folder is opened.

use conjure_base::{Clock as _, SystemClock};

use super::held::Keeper;
use super::labels::{Fate, Host, MANAGED};
use super::listing::Found;
use crate::error::SandboxError;
use crate::guest_process::unavailable;
use crate::places::KnownPlaces;

/// What a sweep of containers did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SweptContainers {
    /// Containers of dead hosts, and such of this connector's own as could not be removed before; now they are.
    pub removed: usize,
    /// Containers of hosts that live or may live, this one among them.
    pub alive: usize,
    /// What could not be removed.
    pub failures: Vec<SandboxError>,
}

/// Removes every container that was left behind.
pub(super) async fn sweep(
    keeper: &Keeper,
    host: Host,
    known: Vec<KnownPlaces>,
) -> Result<SweptContainers, SandboxError> {
    let now = SystemClock.timestamp().millis() / 1000;
    let all = keeper.engine.labelled(MANAGED).await?;
    // Locks are looked at.
    let fates = tokio::task::spawn_blocking(move || {
        let fate = |found: Found| {
            let fate = host.fate(&found.name, &found.labels, &known, now);
            (found, fate)
        };
        all.into_iter().map(fate).collect::<Vec<_>>()
    });
    let fates = fates.await.map_err(|error| unavailable("containers cannot be looked at", error))?;
    let mut swept = SweptContainers::default();
    for (found, fate) in fates {
        let is_left = match fate {
            Fate::Kept => false,
            Fate::Own => !keeper.holds(&found.name),
            Fate::LeftBehind => true,
        };
        if !is_left {
            swept.alive += 1;
            continue;
        }
        match keeper.engine.remove(&found.id).await {
            Ok(_) => swept.removed += 1,
            Err(error) => swept.failures.push(error),
        }
    }
    Ok(swept)
}
