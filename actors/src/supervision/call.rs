//! The way back of a call: one answer, to a caller that may have gone.

use conjure_base::{Clock, Deadline, SystemClock};
use tokio::sync::oneshot;

/// Where the answer to a call goes. It travels in the message.
///
/// Dropping it without an answer, as the end of an actor does, tells the caller that the call is lost.
#[derive(Debug)]
pub struct Reply<R> {
    answer: oneshot::Sender<R>,
    deadline: Deadline,
}

/// StopCause a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No incarnation takes messages now. Nothing was done.
    #[error("the actor is not running")]
    NotRunning,
    /// As many messages wait as may. Nothing was done.
    #[error("the actor's queue is full")]
    Full,
    /// The actor ended, or dropped the call, before it answered. Something may have been done.
    #[error("the actor ended before it answered")]
    Lost,
    /// No answer came before the deadline. Something may have been done, or may still be.
    #[error("the actor did not answer before the deadline")]
    DeadlinePassed,
}

impl CallError {
    /// Whether nothing was done, so that the call can be made again.
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

    /// Answers. When the caller does not wait any more, the answer is dropped.
    pub fn send(self, answer: R) {
        if self.answer.send(answer).is_err() {
            tracing::trace!("a late answer is dropped");
        }
    }

    /// Whether somebody waits for the answer. Work for a caller that is gone can be skipped.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.answer.is_closed() && !SystemClock.remaining(self.deadline).is_zero()
    }

    /// Until when somebody waits.
    #[must_use]
    pub const fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Resolves when nobody waits any more.
    pub async fn abandoned(&mut self) {
        self.answer.closed().await;
    }
}
