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
use crate::runtime::maintenance::dead_processes::sweep_containers;
use crate::runtime::maintenance::dead_processes::sweep_dead_processes;
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
    let clock_check = Arc::new(ClockCheck::new());
    let mut tasks: Vec<Arc<dyn MaintenanceTask>> = vec![
        task("directories", 3_600, context, sweep_tenant_dirs),
        task("journal", 3_600, context, free_journal_blobs),
        task("counters", 6 * 3_600, context, move |context| {
            prune_counters(context, Arc::clone(&clock_check))
        }),
        Arc::new(DeleteServiceFiles::new(here())),
    ];
    if context.is_shared() {
        tasks.push(task("dead-hosts", 60, context, sweep_dead_processes));
    }
    #[cfg(feature = "docker")]
    tasks.push(task("containers", 600, context, sweep_containers));
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

/// A task without a state of its own.
struct FunctionTask<F> {
    name: &'static str,
    interval: Duration,
    context: Arc<MaintenanceContext>,
    run: F,
}

/// A task that runs a function, which returns how much it did.
fn task<R>(
    name: &'static str,
    interval_secs: u64,
    context: &Arc<MaintenanceContext>,
    run: impl Fn(Arc<MaintenanceContext>) -> R + Send + Sync + 'static,
) -> Arc<dyn MaintenanceTask>
where
    R: Future<Output = Result<u64, Failure>> + Send + 'static,
{
    let interval = Duration::from_secs(interval_secs);
    Arc::new(FunctionTask { name, interval, context: Arc::clone(context), run })
}

impl<F, R> MaintenanceTask for FunctionTask<F>
where
    F: Fn(Arc<MaintenanceContext>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<u64, Failure>> + Send + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn run(&self, _: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin((self.run)(Arc::clone(&self.context)))
    }
}

/// Sweeps the tenants' directories: leftovers of dead processes, interrupted operations, and contents that were not used
/// for a month. Returns how many tenants' directories were swept.
async fn sweep_tenant_dirs(context: Arc<MaintenanceContext>) -> Result<u64, Failure> {
    let runtime = context.runtime()?;
    let swept = sweep_dirs(&context.home).await?;
    // A runtime with a journal in memory does not know what other processes have recorded.
    if context.home.record() == JournalLocation::OnDisk {
        recover(&context.home, &runtime.session_reader().await?).await?;
    }
    Ok(swept)
}

/// Frees the large bodies that nothing in the journal refers to. Returns how many bodies were freed.
async fn free_journal_blobs(context: Arc<MaintenanceContext>) -> Result<u64, Failure> {
    let reader = context.runtime()?.session_reader().await?;
    Ok(reader.journal().sweep().await?.blobs)
}

/// How many tenants are listed at a time.
const PAGE: u32 = 500;

/// Removes tenants' spending counters of days and months that ended long ago. Nothing is charged to them any more,
/// since a call is charged to the day on which it ends. Returns how many counters were removed.
async fn prune_counters(
    context: Arc<MaintenanceContext>,
    clock_check: Arc<ClockCheck>,
) -> Result<u64, Failure> {
    let reader = context.runtime()?.session_reader().await?;
    let Some(now) = clock_check.now() else { return Ok(0) };
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
}
