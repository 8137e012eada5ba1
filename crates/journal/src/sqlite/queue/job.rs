//! A queued call: its work, and the channel to its caller.

use tokio::sync::oneshot;

use crate::error::JournalError;
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::statements::transaction::Tx;

/// A queued call. It runs again if its first transaction was rolled back.
pub(crate) trait QueuedCall: Send {
    /// Runs the call in a transaction. An error means that the transaction must be rolled back.
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), rusqlite::Error>;

    /// Sends the result to the caller, after the transaction has ended.
    fn complete(self: Box<Self>, end: Result<(), JournalError>);

    /// Whether the call may share a transaction.
    fn batching(&self) -> Batching;

    /// Whether the caller no longer waits for the result.
    fn is_abandoned(&self) -> bool;
}

/// Whether a call may share a transaction with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batching {
    /// It may share a transaction.
    Shared,
    /// It needs its own transaction. It acts outside of the database on what it reads, so all of that must be durable.
    Exclusive,
}

/// The receiver of a call's result.
pub(crate) type CallReply<T> = oneshot::Receiver<Result<T, JournalError>>;

struct WorkCall<T, F> {
    batching: Batching,
    work: F,
    outcome: Option<Result<T, JournalError>>,
    caller: oneshot::Sender<Result<T, JournalError>>,
}

/// A queued call that runs `work`, and the receiver of its result.
pub(crate) fn queued_call<T: Send + 'static>(
    batching: Batching,
    work: impl FnMut(&Tx<'_>) -> Result<T, TxError> + Send + 'static,
) -> (Box<dyn QueuedCall>, CallReply<T>) {
    let (caller, answer) = oneshot::channel();
    (Box::new(WorkCall { batching, work, outcome: None, caller }), answer)
}

impl<T: Send, F: FnMut(&Tx<'_>) -> Result<T, TxError> + Send> QueuedCall for WorkCall<T, F> {
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), rusqlite::Error> {
        self.outcome = Some(match (self.work)(tx) {
            Ok(value) => Ok(value),
            Err(TxError::Rejected(error)) => Err(error),
            Err(TxError::Database(error)) => return Err(error),
        });
        Ok(())
    }

    fn complete(self: Box<Self>, end: Result<(), JournalError>) {
        let result = match (end, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Err(error), _) => Err(error),
            (Ok(()), None) => {
                Err(JournalError::Lost { part: "writer", reason: "it skipped a call".to_owned() })
            }
        };
        // The caller may no longer wait for the result.
        let _ = self.caller.send(result);
    }

    fn batching(&self) -> Batching {
        self.batching
    }

    fn is_abandoned(&self) -> bool {
        self.caller.is_closed()
    }
}
