//! The handle of the janitor, and its place in the tree.

use std::sync::Arc;

use conjure_base::Deadline;

use super::actor::{MaintenanceActor, MaintenanceMessage};
use super::task::{MaintenanceTask, StatusBoard, TaskStatus};
use crate::supervision::{Address, Backoff, CallError, ChildId, ChildSpec, SpecError, WorkerSpec};

/// Does chores in the background. Clones are the same.
#[derive(Debug, Clone)]
pub struct MaintenanceScheduler {
    address: Address<MaintenanceMessage>,
    board: Arc<StatusBoard>,
}

/// Why a chore was not done when somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// There is none of this name.
    #[error("there is no maintenance task `{name}`; there are: {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// It was tried.
    #[error("the maintenance task `{name}` failed: {reason}")]
    Failed {
        /// Which.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The janitor did not answer. It may be done even so.
    #[error("the maintenance scheduler did not answer: {0}")]
    Call(#[from] CallError),
}

/// The actor's spec, and the handle.
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
    /// How its chores stand. Asks nobody.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskStatus> {
        self.board.entries().clone()
    }

    /// Has a chore done now, or once more where it is being done, and says how much was done.
    ///
    /// # Errors
    /// When there is none of this name, it failed, or the maintenance scheduler did not answer before the deadline.
    pub async fn run(&self, name: &str, deadline: Deadline) -> Result<u64, TaskError> {
        let known: Vec<_> = self.board.entries().iter().map(|entry| entry.name).collect();
        let Some(index) = known.iter().position(|known| *known == name) else {
            return Err(TaskError::Unknown { name: name.to_owned(), known });
        };
        let outcome = self.address.call(deadline, |reply| MaintenanceMessage::Run { index, reply }).await?;
        outcome.map_err(|reason| TaskError::Failed { name: known[index], reason })
    }
}
