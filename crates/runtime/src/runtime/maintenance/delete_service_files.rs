//! The maintenance task that deletes files of deleted sessions at models' services.
//!
//! A note that fails is tried again in later runs. The number of runs between two attempts doubles each time, up to a
//! limit. It is kept in memory, so a new process tries at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_actors::maintenance::MaintenanceTask;
use conjure_actors::supervision::Failure;
use conjure_base::{Clock as _, Deadline, SystemClock, lock};
use futures_util::future::BoxFuture;

use crate::runtime::handle::Runtime;
use crate::runtime::maintenance::context::MaintenanceContext;
use crate::runtime::remote_cleanup::{BatchResult, CircuitBreaker, process_note};

/// The name of the task.
pub(crate) const NAME: &str = "service-files";
/// How long a run may take. The next run does the rest.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// The most runs between two attempts. With one run every five minutes, these are six hours.
const MAX_SKIPPED_RUNS: u32 = 72;

/// Deletes the files and skills that the cleanup notes name.
pub(super) struct DeleteServiceFiles {
    context: Arc<MaintenanceContext>,
    state: Mutex<RetrySchedule>,
}

#[derive(Debug, Default)]
struct RetrySchedule {
    failing: BTreeMap<String, FailingNote>,
    /// The note that was processed last. The next run starts after it.
    last: Option<String>,
}

/// A note that failed.
#[derive(Debug, Default, Clone, Copy)]
struct FailingNote {
    times: u32,
    /// How many runs to wait before the next attempt.
    passes: u32,
}

/// The outcome of a note in a run.
#[derive(Debug, Clone, Copy)]
enum NoteOutcome {
    /// Something was deleted, or there was nothing to do.
    Progress,
    Failed,
    /// Nothing was tried, because the service did not respond for earlier notes. This is no failure.
    Skipped,
}

impl RetrySchedule {
    /// The notes that are due in this run, in order, starting after the last one.
    fn due(&mut self, names: &[String]) -> Vec<String> {
        self.failing.retain(|name, _| names.binary_search(name).is_ok());
        let first = self.last.as_ref().map_or(0, |last| names.partition_point(|name| name <= last));
        let mut due = Vec::new();
        for name in names[first..].iter().chain(&names[..first]) {
            match self.failing.get_mut(name).filter(|failing| failing.passes > 0) {
                Some(failing) => failing.passes -= 1,
                None => due.push(name.clone()),
            }
        }
        due
    }

    fn record(&mut self, name: &str, outcome: NoteOutcome) {
        match outcome {
            // The next run starts with this note.
            NoteOutcome::Skipped => return,
            NoteOutcome::Progress => drop(self.failing.remove(name)),
            NoteOutcome::Failed => {
                let failing = self.failing.entry(name.to_owned()).or_default();
                failing.passes =
                    2_u32.saturating_pow(failing.times).saturating_sub(1).min(MAX_SKIPPED_RUNS - 1);
                failing.times = failing.times.saturating_add(1);
            }
        }
        self.last = Some(name.to_owned());
    }
}

impl DeleteServiceFiles {
    pub(super) fn new(context: Arc<MaintenanceContext>) -> Self {
        Self { context, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, RetrySchedule> {
        lock(&self.state)
    }

    async fn process_notes(&self, runtime: &Runtime, deadline: Deadline) -> Result<u64, Failure> {
        let names = runtime.inner.notes.names().await?;
        let due = self.state().due(&names);
        let (mut deleted, mut failed, mut breaker) = (0, None, CircuitBreaker::default());
        for name in due {
            if SystemClock.remaining(deadline).is_zero() {
                break;
            }
            // A note that cannot be read or processed does not delay the others.
            let batch = process_note(runtime, &name, &mut breaker, deadline).await;
            let batch = batch.unwrap_or_else(|error| BatchResult {
                failure: Some(error.to_string()),
                ..BatchResult::default()
            });
            let BatchResult { deleted: in_note, failure, is_skipped, .. } = batch;
            deleted += in_note;
            let outcome = match &failure {
                Some(_) if in_note == 0 => NoteOutcome::Failed,
                None if in_note == 0 && is_skipped => NoteOutcome::Skipped,
                // A note with progress is processed again in the next run, even if some of it was refused.
                _ => NoteOutcome::Progress,
            };
            self.state().record(&name, outcome);
            failed = failed.or(failure);
        }
        match failed {
            Some(reason) if deleted == 0 => {
                Err(format!("files of deleted sessions are left at their models' services: {reason}").into())
            }
            _ => Ok(deleted),
        }
    }
}

impl MaintenanceTask for DeleteServiceFiles {
    fn name(&self) -> &'static str {
        NAME
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(300)
    }

    /// Returns how many files were deleted.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let runtime = self.context.runtime()?;
            self.process_notes(&runtime, SystemClock.deadline(RUN_TIMEOUT).min(deadline)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn who_fails_waits_for_twice_as_many_runs_each_time_and_not_for_ever() {
        let mut state = RetrySchedule::default();
        let mut tried = Vec::new();
        for run in 0..1_000 {
            if !state.due(&names(&["a"])).is_empty() {
                tried.push(run);
                state.record("a", NoteOutcome::Failed);
            }
        }
        assert_eq!(tried[..9], [0, 1, 3, 7, 15, 31, 63, 127, 199]);
        assert_eq!(tried.last(), Some(&991));
        state.record("a", NoteOutcome::Progress);
        assert_eq!(state.due(&names(&["a"])), ["a"], "it went well, and more is left");
    }

    #[test]
    fn who_was_only_skipped_is_first_the_next_time_and_waits_for_no_run() {
        let mut state = RetrySchedule::default();
        let all = names(&["a", "b", "c"]);
        let mut first = Vec::new();
        for _ in 0..3 {
            let due = state.due(&all);
            first.push(due[0].clone());
            state.record(&due[0], NoteOutcome::Failed);
            due[1..].iter().for_each(|name| state.record(name, NoteOutcome::Skipped));
        }
        assert_eq!(first, all);
    }

    #[test]
    fn a_run_goes_on_where_the_one_before_it_ended() {
        let mut state = RetrySchedule::default();
        assert_eq!(state.due(&names(&["a", "b", "c"])), ["a", "b", "c"]);
        state.record("a", NoteOutcome::Progress);
        assert_eq!(state.due(&names(&["a", "b", "c"])), ["b", "c", "a"]);
        state.record("b", NoteOutcome::Failed);
        state.record("b", NoteOutcome::Failed);
        assert_eq!(state.due(&names(&["a", "b", "c"])), ["c", "a"]);
        // A deleted note is not remembered.
        assert_eq!(state.due(&names(&["a"])), ["a"]);
        assert!(state.failing.is_empty());
    }
}
