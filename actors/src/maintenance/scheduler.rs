//! The handle of the maintenance scheduler, and its child spec.

use std::sync::Arc;

use conjure_base::Deadline;

use super::actor::{MaintenanceActor, MaintenanceMessage};
use super::task::{MaintenanceTask, StatusBoard, TaskStatus};
use crate::supervision::{Address, Backoff, CallError, ChildId, ChildSpec, SpecError, WorkerSpec};

/// Runs maintenance tasks in the background. Cheap to clone; clones share the scheduler.
#[derive(Debug, Clone)]
pub struct MaintenanceScheduler {
    address: Address<MaintenanceMessage>,
    board: Arc<StatusBoard>,
}

/// Why a requested task did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// There is no task of this name.
    #[error("there is no maintenance task `{name}`; there are: {}", known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The names of all tasks.
        known: Vec<&'static str>,
    },
    /// The task failed.
    #[error("the maintenance task `{name}` failed: {reason}")]
    Failed {
        /// The name of the task.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// The scheduler did not answer. The task may still run.
    #[error("the maintenance scheduler did not answer: {0}")]
    Call(#[from] CallError),
}

/// The spec of the scheduler's actor, and the handle.
pub(crate) fn maintenance(
    tasks: Vec<Arc<dyn MaintenanceTask>>,
) -> Result<(ChildSpec, MaintenanceScheduler), SpecError> {
    let board = Arc::new(StatusBoard::new(&tasks));
    let (tasks, actor_board): (Arc<[_]>, _) = (tasks.into(), Arc::clone(&board));
    let start = move |context| {
        let actor = MaintenanceActor::start(Arc::clone(&tasks), Arc::clone(&actor_board), &context);
        async { Ok(actor) }
    };
    let (spec, address) =
        WorkerSpec::new(ChildId::new("maintenance")?, start).backoff(Backoff::default()).build();
    Ok((spec, MaintenanceScheduler { address, board }))
}

impl MaintenanceScheduler {
    /// The status of all tasks. Does not ask the actor.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskStatus> {
        self.board.entries().clone()
    }

    /// Runs a task now, or once more if it runs already, and returns how much was done.
    ///
    /// # Errors
    /// If there is no task of this name, if it failed, or if the scheduler did not answer before the deadline.
    pub async fn run(&self, name: &str, deadline: Deadline) -> Result<u64, TaskError> {
        let known: Vec<_> = self.board.entries().iter().map(|entry| entry.name).collect();
        let Some(index) = known.iter().position(|known| *known == name) else {
            return Err(TaskError::Unknown { name: name.to_owned(), known });
        };
        let outcome = self.address.call(deadline, |reply| MaintenanceMessage::Run { index, reply }).await?;
        outcome.map_err(|reason| TaskError::Failed { name: known[index], reason })
    }
}
