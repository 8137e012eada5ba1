//! What a runtime's janitor does: what dead hosts left, what broke off, what nobody uses any more, and what is kept for so long.
//!
//! State: none that lasts. Every run looks at what is there; one that breaks off is done again in its time.

mod artifacts;
mod counters;
mod dead_hosts;
mod folders;
mod journal;
mod premises;
mod retention;
mod service_files;
mod steady;

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_artifact::ArtifactOptions;

use super::options::Record;

pub(super) use premises::Premises;
pub(super) use service_files::NAME as SERVICE_FILES;

/// The chores of a runtime with this data. What is given is shared with it once it has started.
pub(super) fn chores(
    premises: &Arc<Premises>,
    retention: Option<Duration>,
    artifacts: Option<ArtifactOptions>,
) -> Vec<Arc<dyn Chore>> {
    let here = || Arc::clone(premises);
    let mut chores: Vec<Arc<dyn Chore>> = vec![
        Arc::new(folders::Folders::at(here())),
        Arc::new(journal::Journal::at(here())),
        Arc::new(counters::Counters::at(here())),
    ];
    chores.push(Arc::new(service_files::ServiceFiles::at(here())));
    if premises.is_shared() {
        chores.push(Arc::new(dead_hosts::DeadHosts::at(here())));
    }
    #[cfg(feature = "docker")]
    chores.push(Arc::new(dead_hosts::Containers::at(here())));
    // What is kept in memory has no links, and goes with the process.
    if let Some(options) = artifacts
        && let Some(time) = options.session_ttl
        && premises.home.record() == Record::OnDisk
    {
        chores.push(Arc::new(artifacts::Artifacts::at(here(), Arc::new(options), time)));
    }
    if let Some(time) = retention {
        chores.push(Arc::new(retention::Retention::at(here(), time)));
    }
    chores
}
