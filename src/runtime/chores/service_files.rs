//! The chore of what lies at models' services of sessions that are deleted: it is deleted there.
//!
//! What fails is tried again in later runs, each time after twice as many: that is remembered in memory, so a new start tries at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_actors::janitor::Chore;
use conjure_actors::supervision::Failure;
use conjure_base::{Clock as _, Deadline, SystemClock};
use futures_util::future::BoxFuture;

use super::super::handle::Runtime;
use super::super::remains::{Carried, Silent, carry};
use super::premises::Premises;

/// What it is called.
pub(in crate::runtime) const NAME: &str = "service-files";
/// How long a run goes on: what is left then has its turn in the next one.
const RUN: Duration = Duration::from_secs(60);
/// The most runs that are let pass between two tries: six hours of them.
const MOST_PASSED: u32 = 72;

/// Deletes at services what is noted.
pub(super) struct ServiceFiles {
    premises: Arc<Premises>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failing: BTreeMap<String, Failing>,
    /// The note that was looked at last: the next run begins behind it.
    last: Option<String>,
}

/// A note of which something failed.
#[derive(Debug, Default, Clone, Copy)]
struct Failing {
    times: u32,
    /// How many runs pass before it is tried again.
    passes: u32,
}

/// What came of a note in a run.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// Some of it is gone, or nothing was to be done.
    WentOn,
    Failed,
    /// The service did not answer others before it: nothing of it was tried, and nothing has failed.
    Skipped,
}

impl State {
    /// The notes that are due in this run, in their order, those behind the last one first.
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

    fn note(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            // The next run begins with it.
            Outcome::Skipped => return,
            Outcome::WentOn => drop(self.failing.remove(name)),
            Outcome::Failed => {
                let failing = self.failing.entry(name.to_owned()).or_default();
                failing.passes = 2_u32.saturating_pow(failing.times).saturating_sub(1).min(MOST_PASSED - 1);
                failing.times = failing.times.saturating_add(1);
            }
        }
        self.last = Some(name.to_owned());
    }
}

impl ServiceFiles {
    pub(super) fn at(premises: Arc<Premises>) -> Self {
        Self { premises, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry_all(&self, runtime: &Runtime, deadline: Deadline) -> Result<u64, Failure> {
        let names = runtime.inner.remains.names().await?;
        let due = self.state().due(&names);
        let (mut gone, mut failed, mut silent) = (0, None, Silent::default());
        for name in due {
            if SystemClock.remaining(deadline).is_zero() {
                break;
            }
            // One that cannot be read, or looked after, does not hold up the others.
            let carried = carry(runtime, &name, &mut silent, deadline).await;
            let carried = carried
                .unwrap_or_else(|error| Carried { failure: Some(error.to_string()), ..Carried::default() });
            let Carried { gone: its, failure, is_skipped, .. } = carried;
            gone += its;
            let outcome = match &failure {
                Some(_) if its == 0 => Outcome::Failed,
                None if its == 0 && is_skipped => Outcome::Skipped,
                // What goes on goes on, whatever of it is refused.
                _ => Outcome::WentOn,
            };
            self.state().note(&name, outcome);
            failed = failed.or(failure);
        }
        match failed {
            Some(reason) if gone == 0 => {
                Err(format!("files of deleted sessions are left at their models' services: {reason}").into())
            }
            _ => Ok(gone),
        }
    }
}

impl Chore for ServiceFiles {
    fn name(&self) -> &'static str {
        NAME
    }

    fn every(&self) -> Duration {
        Duration::from_secs(300)
    }

    /// How many files are gone.
    fn run(&self, deadline: Deadline) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(async move {
            let runtime = self.premises.runtime()?;
            self.carry_all(&runtime, SystemClock.deadline(RUN).earlier(deadline)).await
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
        let mut state = State::default();
        let mut tried = Vec::new();
        for run in 0..1_000 {
            if !state.due(&names(&["a"])).is_empty() {
                tried.push(run);
                state.note("a", Outcome::Failed);
            }
        }
        assert_eq!(tried[..9], [0, 1, 3, 7, 15, 31, 63, 127, 199]);
        assert_eq!(tried.last(), Some(&991));
        state.note("a", Outcome::WentOn);
        assert_eq!(state.due(&names(&["a"])), ["a"], "it went well, and more is left");
    }

    #[test]
    fn who_was_only_skipped_is_first_the_next_time_and_waits_for_no_run() {
        let mut state = State::default();
        let all = names(&["a", "b", "c"]);
        let mut first = Vec::new();
        for _ in 0..3 {
            let due = state.due(&all);
            first.push(due[0].clone());
            state.note(&due[0], Outcome::Failed);
            due[1..].iter().for_each(|name| state.note(name, Outcome::Skipped));
        }
        assert_eq!(first, all);
    }

    #[test]
    fn a_run_goes_on_where_the_one_before_it_ended() {
        let mut state = State::default();
        assert_eq!(state.due(&names(&["a", "b", "c"])), ["a", "b", "c"]);
        state.note("a", Outcome::WentOn);
        assert_eq!(state.due(&names(&["a", "b", "c"])), ["b", "c", "a"]);
        state.note("b", Outcome::Failed);
        state.note("b", Outcome::Failed);
        assert_eq!(state.due(&names(&["a", "b", "c"])), ["c", "a"]);
        // What is gone is not remembered.
        assert_eq!(state.due(&names(&["a"])), ["a"]);
        assert!(state.failing.is_empty());
    }
}
