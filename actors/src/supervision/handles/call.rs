//! The reply of a call: one answer to a caller that may have stopped waiting.

use conjure_base::Deadline;
use tokio::sync::oneshot;

/// The reply channel of a call. The message carries it to the actor.
///
/// If it is dropped without an answer, for example because the actor ends, the caller gets [`CallError::Lost`].
#[derive(Debug)]
pub struct Reply<R> {
    answer: oneshot::Sender<R>,
    deadline: Deadline,
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No incarnation accepts messages now. Nothing was done.
    #[error("the actor is not running")]
    NotRunning,
    /// The queue is full. Nothing was done.
    #[error("the actor's queue is full")]
    Full,
    /// The actor ended, or dropped the call, before it answered. Something may have been done.
    #[error("the actor ended before it answered")]
    Lost,
    /// No answer came before the deadline. Something may have been done, or may still be done.
    #[error("the actor did not answer before the deadline")]
    DeadlinePassed,
}

impl CallError {
    /// Whether nothing was done, so that the call can be repeated.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::NotRunning | Self::Full)
    }
}

impl<R> Reply<R> {
    pub(crate) fn new(deadline: Deadline) -> (Self, oneshot::Receiver<R>) {
        let (answer, caller) = oneshot::channel();
        (Self { answer, deadline }, caller)
    }

    /// Sends the answer. It is dropped if the caller has stopped waiting.
    pub fn send(self, answer: R) {
        if self.answer.send(answer).is_err() {
            tracing::trace!("a late answer is dropped");
        }
    }

    /// The time until which the caller waits.
    #[must_use]
    pub const fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Resolves when the caller has stopped waiting.
    pub async fn abandoned(&mut self) {
        self.answer.closed().await;
    }
}
