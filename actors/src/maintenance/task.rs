//! A maintenance task, and its status.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, Timestamp, lock};
use futures_util::future::BoxFuture;

use crate::supervision::Failure;

/// A task that runs periodically.
pub trait MaintenanceTask: Send + Sync + 'static {
    /// The task's name: a few words with dashes, such as `dead-hosts`. The names within a scheduler are unique.
    fn name(&self) -> &'static str;

    /// The pause after each run. Up to an eighth is added as jitter, so that many processes do not run it at the same
    /// time.
    fn interval(&self) -> Duration;

    /// How long a run may take before it is dropped.
    fn timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// Runs the task once, until the deadline at most. Returns how much was done, usually the number of removed things.
    /// The future may be dropped at any await.
    ///
    /// # Errors
    /// Why the task failed. It is logged, and the task runs again after its interval.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>>;
}

/// The status of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskStatus {
    /// The task's name.
    pub name: &'static str,
    /// The number of successful runs.
    pub runs: u64,
    /// The number of failures since the last success.
    pub failures: u64,
    /// The last run; `None` before the first.
    pub last: Option<LastRun>,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// When the run ended.
    pub at: Timestamp,
    /// How much was done, or why it failed.
    pub outcome: Result<u64, String>,
}

/// The status of all tasks. It survives the actor.
#[derive(Debug)]
pub(super) struct StatusBoard {
    entries: Mutex<Vec<TaskStatus>>,
}

impl StatusBoard {
    pub(super) fn new(tasks: &[Arc<dyn MaintenanceTask>]) -> Self {
        let blank = |task: &Arc<dyn MaintenanceTask>| TaskStatus {
            name: task.name(),
            runs: 0,
            failures: 0,
            last: None,
        };
        Self { entries: Mutex::new(tasks.iter().map(blank).collect()) }
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Vec<TaskStatus>> {
        lock(&self.entries)
    }

    /// Records the end of a run of the task at this index.
    pub(super) fn record(&self, index: usize, outcome: Result<u64, String>) {
        if let Some(entry) = self.entries().get_mut(index) {
            match outcome {
                Ok(_) => (entry.runs, entry.failures) = (entry.runs + 1, 0),
                Err(_) => entry.failures += 1,
            }
            entry.last = Some(LastRun { at: SystemClock.timestamp(), outcome });
        }
    }
}
