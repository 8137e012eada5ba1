//! The list of a runtime's maintenance tasks, and the short ones among them.
//!
//! State: nothing that outlives the process.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::maintenance::MaintenanceTask;
use conjure_actors::supervision::Failure;
use conjure_actors::tenants::past_counters;
use conjure_artifact::ArtifactOptions;
use conjure_base::Deadline;
use futures_util::future::BoxFuture;

use crate::runtime::maintenance::clock_check::ClockCheck;
use crate::runtime::maintenance::context::MaintenanceContext;
#[cfg(feature = "docker")]
use crate::runtime::maintenance::dead_processes::SweepContainers;
use crate::runtime::maintenance::dead_processes::SweepDeadProcesses;
use crate::runtime::maintenance::delete_old_sessions::DeleteOldSessions;
use crate::runtime::maintenance::delete_service_files::DeleteServiceFiles;
use crate::runtime::maintenance::expire_artifacts::ExpireArtifacts;
use crate::runtime::options::JournalLocation;
use crate::runtime::recover_intents::recover;
use crate::runtime::sweep::sweep_dirs;

/// The maintenance tasks of a runtime with these options.
pub(crate) fn maintenance_tasks(
    context: &Arc<MaintenanceContext>,
    retention: Option<Duration>,
    artifacts: Option<ArtifactOptions>,
) -> Vec<Arc<dyn MaintenanceTask>> {
    let here = || Arc::clone(context);
    let mut tasks: Vec<Arc<dyn MaintenanceTask>> = vec![
        Arc::new(SweepTenantDirs(here())),
        Arc::new(FreeJournalBlobs(here())),
        Arc::new(PruneCounters::new(here())),
    ];
    tasks.push(Arc::new(DeleteServiceFiles::new(here())));
    if context.is_shared() {
        tasks.push(Arc::new(SweepDeadProcesses::new(here())));
    }
    #[cfg(feature = "docker")]
    tasks.push(Arc::new(SweepContainers::new(here())));
    // A journal in memory has no pins, and ends with the process.
    if let Some(options) = artifacts
        && let Some(ttl) = options.session_ttl
        && context.home.record() == JournalLocation::OnDisk
    {
        tasks.push(Arc::new(ExpireArtifacts::new(here(), Arc::new(options), ttl)));
    }
    if let Some(max_age) = retention {
        tasks.push(Arc::new(DeleteOldSessions::new(here(), max_age)));
    }
    tasks
}

/// Sweeps the tenants' folders: leftovers of dead processes, interrupted operations, and contents that were not used
/// for a month.
struct SweepTenantDirs(Arc<MaintenanceContext>);

impl MaintenanceTask for SweepTenantDirs {
    fn name(&self) -> &'static str {
        "folders"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    /// Returns how many tenants' folders were swept.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async {
            let runtime = self.0.runtime()?;
            let swept = sweep_dirs(&self.0.home).await?;
            // A runtime with a journal in memory does not know what other processes have recorded.
            if self.0.home.record() == JournalLocation::OnDisk {
                recover(&self.0.home, &runtime.session_reader().await?).await?;
            }
            Ok(swept)
        })
    }
}

/// Frees the large bodies that nothing in the journal refers to.
struct FreeJournalBlobs(Arc<MaintenanceContext>);

impl MaintenanceTask for FreeJournalBlobs {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    /// Returns how many bodies were freed.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async {
            let reader = self.0.runtime()?.session_reader().await?;
            Ok(reader.journal().sweep().await?.blobs)
        })
    }
}

/// How many tenants are listed at a time.
const PAGE: u32 = 500;

/// Removes tenants' spending counters of days and months that ended long ago. Nothing is charged to them any more,
/// since a call is charged to the day on which it ends.
struct PruneCounters {
    context: Arc<MaintenanceContext>,
    clock_check: ClockCheck,
    since: Deadline,
}

impl PruneCounters {
    fn new(context: Arc<MaintenanceContext>) -> Self {
        Self { context, clock_check: ClockCheck::default(), since: ClockCheck::beginning() }
    }
}

impl MaintenanceTask for PruneCounters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(6 * 3_600)
    }

    /// Returns how many counters were removed.
    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let reader = self.context.runtime()?.session_reader().await?;
            let Some(now) = self.clock_check.now(self.since) else {
                tracing::debug!("the day is not known yet: the clock was just started or set");
                return Ok(0);
            };
            let (journal, mut removed, mut last) = (reader.journal(), 0, None);
            loop {
                let tenants = journal.tenants(last.as_ref(), PAGE).await?;
                let Some(next) = tenants.last().cloned() else { return Ok(removed) };
                for tenant in tenants {
                    let past = past_counters(&journal.list_counters(&tenant).await?, now);
                    if !past.is_empty() {
                        removed += journal.delete_counters(&tenant, past).await?;
                    }
                }
                last = Some(next);
            }
        })
    }
}
