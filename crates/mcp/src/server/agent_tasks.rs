//! [`AgentTasks`]: runs of an agent that go on after their call was answered, for clients with the tasks extension (SEP-2663).
//!
//! State, in memory: the tasks of one client. They end with it; what their agents did stays in their sessions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, lock};
use rmcp::model::{CallToolResult, ContentBlock, DetailedTask, ErrorData, Task};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use tokio_util::sync::CancellationToken;

use super::host::{AgentRunner, ProgressFn};
use super::tools;

/// How long a task may run, and how long its result is kept.
const TIME_TO_LIVE: Duration = Duration::from_hours(6);

/// How often a client should ask.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How many tasks of a client may run at once.
const MAX_RUNNING: usize = 32;

/// How many tasks of a client are kept, ended ones with them.
const MAX_KEPT: usize = 1_000;

/// The tasks of a client. Dropping it ends them.
#[derive(Default)]
pub(super) struct AgentTasks {
    manager: TaskManager,
    /// For each task the time when it is certainly forgotten, oldest first.
    kept_until: Mutex<VecDeque<Deadline>>,
}

impl AgentTasks {
    /// Starts a run. `None` if the client has too many tasks: the call has to wait for the answer then, as without the extension.
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
        Some(self.manager.spawn(options, |context| Box::pin(run(agent, prompt, context))))
    }

    /// How many have not ended.
    pub(super) fn running(&self) -> usize {
        self.manager.running_task_count()
    }

    /// A task as it is now.
    pub(super) fn get(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        self.manager.get_task(id)
    }

    /// Answers what a task has asked. Agents ask nothing, so there is nothing that an answer could change.
    pub(super) fn update(
        &self,
        id: &str,
        answers: impl IntoIterator<Item = (String, serde_json::Value)>,
    ) -> Result<(), ErrorData> {
        self.manager.update_task(id, answers)
    }

    /// Has a task end. It has ended once its state says so.
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
    let of_task = context.clone();
    let progress: ProgressFn = Arc::new(move |step| of_task.set_status_message(step));
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
        Err(_) if cancel.is_cancelled() => Err(TaskExit::Cancelled),
        Err(reason) => Ok(tools::failed(reason)),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
