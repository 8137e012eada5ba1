//! Chores after processes that had the data and died: what the start does, for those that die later.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_actors::supervision::Failure;
use conjure_base::Deadline;
use futures_util::future::BoxFuture;

use super::super::error::RuntimeError;
use super::super::outfit::blocking;
use super::super::sweep::{bury, sweep_groups, tidy_folders};
use super::premises::Premises;

/// Removes what processes left that died since this one looked last.
pub(super) struct DeadHosts(Arc<Premises>);

impl DeadHosts {
    pub(super) const fn at(premises: Arc<Premises>) -> Self {
        Self(premises)
    }
}

impl Chore for DeadHosts {
    fn name(&self) -> &'static str {
        "dead-hosts"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How many have died.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async {
            let Premises { home, presence, engines, .. } = &*self.0;
            let Some(presence) = presence else { return Ok(0) };
            let (looking, data) = (Arc::clone(presence), Arc::clone(home));
            let look = move || looking.look().map_err(|error| RuntimeError::data(data.path(), &error));
            let dead = blocking("looking for dead hosts", look).await?;
            let count = dead.count();
            if count > 0 {
                tidy_folders(home).await?;
                sweep_groups().await?;
                engines.sweep(home).await;
                bury(Arc::clone(presence), dead).await?;
            }
            Ok(count as u64)
        })
    }
}

/// Removes containers of dead hosts: also of those that had other data, and those that would not go when they were to.
#[cfg(feature = "docker")]
pub(super) struct Containers(Arc<Premises>);

#[cfg(feature = "docker")]
impl Containers {
    pub(super) const fn at(premises: Arc<Premises>) -> Self {
        Self(premises)
    }
}

#[cfg(feature = "docker")]
impl Chore for Containers {
    fn name(&self) -> &'static str {
        "containers"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// How many were removed.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async { Ok(self.0.engines.sweep(&self.0.home).await) })
    }
}
