//! [`AgentTasks`]: agent runs that continue after their call was answered. They are for clients with the tasks extension (SEP-2663).
//!
//! State: the tasks of one client, in memory. They end with the client. The sessions of their agents stay.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, lock};
use futures_util::FutureExt as _;
use rmcp::model::{CallToolResult, ContentBlock, DetailedTask, ErrorData, Task};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use tokio_util::sync::CancellationToken;

use super::host::{AgentRunner, ProgressFn};
use super::tools;

/// The maximum time that a task runs, and that its result is kept.
const TIME_TO_LIVE: Duration = Duration::from_hours(6);

/// The polling interval that clients are asked to use.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum number of running tasks per client.
const MAX_RUNNING: usize = 32;

/// The maximum number of tasks per client, including ended ones.
const MAX_KEPT: usize = 1_000;

/// The tasks of a client. Dropping it ends them.
#[derive(Default)]
pub(super) struct AgentTasks {
    manager: TaskManager,
    /// For each task, oldest first, the time by which it is certainly removed.
    kept_until: Mutex<VecDeque<Deadline>>,
}

impl AgentTasks {
    /// Starts a run as a task. `None` if the client has too many tasks; the call must then wait for the answer, as without the extension.
    pub(super) fn start(&self, agent: &Arc<dyn AgentRunner>, prompt: &str) -> Option<Task> {
        let mut kept = lock(&self.kept_until);
        while kept.front().is_some_and(|time| SystemClock.remaining(*time).is_zero()) {
            kept.pop_front();
        }
        if kept.len() >= MAX_KEPT || self.running() >= MAX_RUNNING {
            return None;
        }
        kept.push_back(SystemClock.deadline(TIME_TO_LIVE * 2));
        let options = TaskOptions::new()
            .with_ttl_ms(milliseconds(TIME_TO_LIVE))
            .with_poll_interval_ms(milliseconds(POLL_INTERVAL));
        let (agent, prompt) = (Arc::clone(agent), prompt.to_owned());
        Some(self.manager.spawn(options, |context| {
            let running = AssertUnwindSafe(run(agent, prompt, context)).catch_unwind();
            let defect = || ErrorData::internal_error("the agent crashed", None);
            Box::pin(async move { running.await.unwrap_or_else(|_| Err(TaskExit::Error(defect()))) })
        }))
    }

    /// The number of tasks that have not ended.
    pub(super) fn running(&self) -> usize {
        self.manager.running_task_count()
    }

    /// The current state of a task.
    pub(super) fn get(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        self.manager.get_task(id)
    }

    /// Handles the answers to a task's questions. Agents ask nothing, so answers have no effect.
    pub(super) fn update(
        &self,
        id: &str,
        answers: impl IntoIterator<Item = (String, serde_json::Value)>,
    ) -> Result<(), ErrorData> {
        self.manager.update_task(id, answers)
    }

    /// Cancels a task. It has ended once its state says so.
    pub(super) fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        self.manager.cancel_task(id)
    }
}

impl Drop for AgentTasks {
    fn drop(&mut self) {
        self.manager.shutdown();
    }
}

async fn run(
    agent: Arc<dyn AgentRunner>,
    prompt: String,
    context: TaskContext,
) -> Result<CallToolResult, TaskExit> {
    let cancel = CancellationToken::new();
    let (of_task, first) = (context.clone(), OnceLock::new());
    let progress: ProgressFn = Arc::new(move |step| {
        // The first step names the session. Clients poll seldom, so it stays part of the message.
        let first = first.get_or_init(|| step.clone());
        of_task.set_status_message(if *first == step { step } else { format!("{first}; {step}") });
    });
    let mut running = agent.run(prompt, progress, cancel.clone());
    let answer = tokio::select! {
        biased;
        answer = &mut running => answer,
        () = context.cancelled() => {
            cancel.cancel();
            running.await
        }
    };
    match answer {
        Ok(text) => Ok(CallToolResult::success(vec![ContentBlock::text(text)])),
        Err(reason) if cancel.is_cancelled() => {
            context.set_status_message(reason);
            Err(TaskExit::Cancelled)
        }
        Err(reason) => Ok(tools::failed(reason)),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
