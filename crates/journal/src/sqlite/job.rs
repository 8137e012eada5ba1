//! A call on its way through the queue: what is to be done, and who waits for it.

use tokio::sync::oneshot;

use super::fault::Failure;
use super::tables::Tables;
use crate::error::JournalError;

/// A call that waits. It may be carried out again when the transaction of the first time was undone.
pub(crate) trait Job: Send {
    /// Carries it out within a transaction. An error means that the transaction must be undone.
    fn run(&mut self, tables: &Tables<'_>) -> Result<(), rusqlite::Error>;

    /// Answers: with what came of it once the transaction is durable, or with why it is not.
    fn settle(self: Box<Self>, end: Result<(), JournalError>);

    /// What else may be in its transaction.
    fn company(&self) -> Company;

    /// Whether nobody waits for it any more.
    fn is_abandoned(&self) -> bool;
}

/// What else may be in the transaction of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Anything.
    Any,
    /// Nothing: it acts outside of the database upon what it sees there, so all of that must be durable.
    None,
}

/// What a caller waits on.
pub(crate) type Answer<T> = oneshot::Receiver<Result<T, JournalError>>;

struct Call<T, F> {
    company: Company,
    work: F,
    outcome: Option<Result<T, JournalError>>,
    caller: oneshot::Sender<Result<T, JournalError>>,
}

/// A job that does `work`, and what its caller waits on.
pub(crate) fn job<T: Send + 'static>(
    company: Company,
    work: impl FnMut(&Tables<'_>) -> Result<T, Failure> + Send + 'static,
) -> (Box<dyn Job>, Answer<T>) {
    let (caller, answer) = oneshot::channel();
    (Box::new(Call { company, work, outcome: None, caller }), answer)
}

impl<T: Send, F: FnMut(&Tables<'_>) -> Result<T, Failure> + Send> Job for Call<T, F> {
    fn run(&mut self, tables: &Tables<'_>) -> Result<(), rusqlite::Error> {
        self.outcome = Some(match (self.work)(tables) {
            Ok(value) => Ok(value),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Broken(error)) => return Err(error),
        });
        Ok(())
    }

    fn settle(self: Box<Self>, end: Result<(), JournalError>) {
        let result = match (end, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Err(error), _) => Err(error),
            (Ok(()), None) => {
                Err(JournalError::Lost { part: "writer", reason: "it skipped a call".to_owned() })
            }
        };
        // Who waited may be gone.
        let _ = self.caller.send(result);
    }

    fn company(&self) -> Company {
        self.company
    }

    fn is_abandoned(&self) -> bool {
        self.caller.is_closed()
    }
}
