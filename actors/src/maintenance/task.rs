//! A chore, and what is told of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, Timestamp};
use futures_util::future::BoxFuture;

use crate::supervision::Failure;

/// Something that is done again and again.
pub trait MaintenanceTask: Send + Sync + 'static {
    /// What it is called: a few words with dashes, as `dead-hosts`. No two of a janitor have one name.
    fn name(&self) -> &'static str;

    /// How long it rests after each run. Up to an eighth of that is added by jitter, so that many hosts do not do it at once.
    fn interval(&self) -> Duration;

    /// How long a run may take: then it is dropped.
    fn timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// Does it once, until the deadline at the latest, and says how much was done: how many things were removed, as a rule. It may
    /// be dropped at any await.
    ///
    /// # Errors
    /// What kept it from being done. It is logged, and the chore is done again in its time.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>>;
}

/// How a chore stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskStatus {
    /// Which.
    pub name: &'static str,
    /// How often it was done well.
    pub runs: u64,
    /// How often it failed since it was done well last.
    pub failures: u64,
    /// What the last run came to; `None`: there was none yet.
    pub last: Option<LastRun>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// When it was over.
    pub at: Timestamp,
    /// How much was done, or why it was not.
    pub outcome: Result<u64, String>,
}

/// What is told of the chores; it outlives the actor.
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
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run of the chore at this place is over.
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
