//! The handle of the janitor, and its place in the tree.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_base::{Clock as _, Deadline, SystemClock};

use super::actor::{JanitorActor, JanitorMessage};
use super::chore::{Chore, ChoreStatus, LastRun};
use crate::supervision::{Address, Backoff, CallError, ChildId, ChildSpec, SpecError, WorkerSpec};

/// Does chores in the background. Clones are the same.
#[derive(Debug, Clone)]
pub struct Janitor {
    address: Address<JanitorMessage>,
    board: Arc<Board>,
}

/// Why a chore was not done when somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoreError {
    /// There is none of this name.
    #[error("there is no chore `{name}`; there are: {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// It was tried.
    #[error("the chore `{name}` failed: {reason}")]
    Failed {
        /// Which.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The janitor did not answer. It may be done even so.
    #[error("the janitor did not answer: {0}")]
    Call(#[from] CallError),
}

/// What is told of the chores; it outlives the actor.
#[derive(Debug)]
pub(super) struct Board {
    entries: Mutex<Vec<ChoreStatus>>,
}

impl Board {
    fn of(chores: &[Arc<dyn Chore>]) -> Self {
        let blank =
            |chore: &Arc<dyn Chore>| ChoreStatus { name: chore.name(), runs: 0, failures: 0, last: None };
        Self { entries: Mutex::new(chores.iter().map(blank).collect()) }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<ChoreStatus>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run of the chore at this place is over.
    pub(super) fn note(&self, place: usize, outcome: Result<u64, String>) {
        if let Some(entry) = self.entries().get_mut(place) {
            match outcome {
                Ok(_) => (entry.runs, entry.failures) = (entry.runs + 1, 0),
                Err(_) => entry.failures += 1,
            }
            entry.last = Some(LastRun { at: SystemClock.timestamp(), outcome });
        }
    }
}

/// The actor's spec, and the handle.
pub(crate) fn janitor(chores: Vec<Arc<dyn Chore>>) -> Result<(ChildSpec, Janitor), SpecError> {
    let board = Arc::new(Board::of(&chores));
    let (chores, of_actor): (Arc<[_]>, _) = (chores.into(), Arc::clone(&board));
    let start = move |context| {
        let actor = JanitorActor::start(Arc::clone(&chores), Arc::clone(&of_actor), &context);
        async { Ok(actor) }
    };
    let (spec, address) =
        WorkerSpec::new(ChildId::new("janitor")?, start).backoff(Backoff::default()).build();
    Ok((spec, Janitor { address, board }))
}

impl Janitor {
    /// How its chores stand. Asks nobody.
    #[must_use]
    pub fn chores(&self) -> Vec<ChoreStatus> {
        self.board.entries().clone()
    }

    /// Has a chore done now, or once more where it is being done, and says how much was done.
    ///
    /// # Errors
    /// When there is none of this name, it failed, or the janitor did not answer before the deadline.
    pub async fn run(&self, name: &str, deadline: Deadline) -> Result<u64, ChoreError> {
        let known: Vec<_> = self.board.entries().iter().map(|entry| entry.name).collect();
        let Some(place) = known.iter().position(|known| *known == name) else {
            return Err(ChoreError::Unknown { name: name.to_owned(), known });
        };
        let outcome = self.address.call(deadline, |reply| JanitorMessage::Run { place, reply }).await?;
        outcome.map_err(|reason| ChoreError::Failed { name: known[place], reason })
    }
}
