//! The actor of the maintenance scheduler. It waits until a task is due, and runs it beside itself.
//!
//! State: the running tasks and their waiting callers. After a crash these callers get an error.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, TimedOut, with_deadline};
use tokio::sync::oneshot;

use super::task::{MaintenanceTask, StatusBoard};
use crate::metrics::names;
use crate::supervision::{Context, Failure, Flow, OneShotTimer, Reply, Worker};

type Outcome = Result<u64, String>;

/// A message to the actor.
pub(super) enum MaintenanceMessage {
    /// The task at this index may be due.
    Due { index: usize },
    /// A caller wants the task to run now.
    Run { index: usize, reply: Reply<Outcome> },
    /// A run has ended.
    Finished { index: usize, outcome: Outcome },
}

pub(super) struct MaintenanceActor {
    tasks: Arc<[Arc<dyn MaintenanceTask>]>,
    board: Arc<StatusBoard>,
    states: Vec<TaskState>,
    jitter: RandomState,
}

/// The state of a task.
#[derive(Default)]
struct TaskState {
    phase: Phase,
    /// Callers that wait for the current run.
    waiting: Vec<Reply<Outcome>>,
    /// Callers that came later and wait for the next run.
    queued: Vec<Reply<Outcome>>,
    runs: u64,
}

#[derive(Default)]
enum Phase {
    #[default]
    Running,
    Waiting(#[expect(dead_code, reason = "it rings for as long as it is there")] OneShotTimer),
}

impl MaintenanceActor {
    pub(super) fn start(
        tasks: Arc<[Arc<dyn MaintenanceTask>]>,
        board: Arc<StatusBoard>,
        context: &Context<MaintenanceMessage>,
    ) -> Self {
        let states = tasks.iter().map(|_| TaskState::default()).collect();
        let mut actor = Self { tasks, board, states, jitter: RandomState::new() };
        (0..actor.states.len()).for_each(|index| actor.schedule(index, context));
        actor
    }

    /// Schedules the next run after the task's interval.
    fn schedule(&mut self, index: usize, context: &Context<MaintenanceMessage>) {
        let state = &mut self.states[index];
        let interval = self.tasks[index].interval();
        let due =
            SystemClock.deadline(interval + part(interval / 8, self.jitter.hash_one((index, state.runs))));
        let address = context.address().clone();
        let notify = move || {
            // Each task has at most one message on its way.
            let _ = address.send(MaintenanceMessage::Due { index });
        };
        state.phase = Phase::Waiting(OneShotTimer::set(due, notify));
    }

    fn start_run(&mut self, index: usize, context: &Context<MaintenanceMessage>) {
        let state = &mut self.states[index];
        state.phase = Phase::Running;
        state.runs += 1;
        let task = Arc::clone(&self.tasks[index]);
        let (sender, outcome) = oneshot::channel();
        context.spawn(async move { drop(sender.send(run_task(&*task).await)) }).detach();
        let address = context.address().clone();
        let report = async move {
            // If the task panicked, its sender was dropped.
            let outcome = outcome.await.unwrap_or_else(|_| Err("it panicked".to_owned()));
            let _ = address
                .send_with_deadline(MaintenanceMessage::Finished { index, outcome }, Deadline::NEVER)
                .await;
        };
        context.spawn(report).detach();
    }

    fn run_finished(&mut self, index: usize, outcome: &Outcome, context: &Context<MaintenanceMessage>) {
        let task = self.tasks[index].name();
        match outcome {
            Ok(0) => {}
            Ok(count) => tracing::info!(task, count, "a maintenance task succeeded"),
            Err(reason) => tracing::warn!(task, reason, "a maintenance task failed"),
        }
        let label = if outcome.is_ok() { "ok" } else { "failed" };
        metrics::counter!(names::MAINTENANCE_RUNS, "task" => task, "outcome" => label).increment(1);
        self.board.record(index, outcome.clone());
        let state = &mut self.states[index];
        for reply in state.waiting.drain(..) {
            reply.send(outcome.clone());
        }
        state.waiting = std::mem::take(&mut state.queued);
        if state.waiting.is_empty() {
            self.schedule(index, context);
        } else {
            self.start_run(index, context);
        }
    }
}

/// A random fraction of a duration; `roll` is 64 random bits.
fn part(of: Duration, roll: u64) -> Duration {
    let nanos = (of.as_nanos() * u128::from(roll)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Runs the task with its timeout.
async fn run_task(task: &dyn MaintenanceTask) -> Outcome {
    let timeout = task.timeout();
    let deadline = SystemClock.deadline(timeout);
    match with_deadline(&SystemClock, deadline, task.run(deadline)).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(TimedOut) => Err(format!("it did not finish within {timeout:?}")),
    }
}

impl Worker for MaintenanceActor {
    type Message = MaintenanceMessage;

    async fn handle(
        &mut self,
        message: MaintenanceMessage,
        context: &Context<MaintenanceMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            MaintenanceMessage::Due { index } => {
                if matches!(self.states[index].phase, Phase::Waiting(_)) {
                    self.start_run(index, context);
                }
            }
            MaintenanceMessage::Run { index, reply } => match self.states[index].phase {
                Phase::Waiting(_) => {
                    self.states[index].waiting.push(reply);
                    self.start_run(index, context);
                }
                Phase::Running => self.states[index].queued.push(reply),
            },
            MaintenanceMessage::Finished { index, outcome } => self.run_finished(index, &outcome, context),
        }
        Ok(Flow::Continue)
    }
}
