//! The address of a worker: a bounded queue that stays valid over the worker's restarts.
//!
//! The mailboxes of `ractor` are unbounded, so the address enforces the bound: each message carries one of a fixed
//! number of permits. The permit is released when the worker takes the message, or when the message is dropped with its
//! mailbox. A full queue is an immediate error.

use std::fmt;
use std::sync::Arc;

use conjure_base::{Deadline, SystemClock, TimedOut, with_deadline};
use ractor::MessagingErr;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use super::call::{CallError, Reply};
use super::monitor::Monitor;
use crate::supervision::running::actor_slot::ActorSlot;
use crate::supervision::running::node::MailboxGauge;
use crate::supervision::specs::id::ChildId;

/// An entry of a worker's mailbox.
pub(crate) enum Envelope<M> {
    Message {
        message: M,
        permit: OwnedSemaphorePermit,
    },
    /// The worker may have been idle for long enough to stop.
    Idle,
}

/// The slot of a worker, over all its incarnations, and the permits of its queue.
pub(crate) struct WorkerEndpoint<M: Send + 'static> {
    pub(crate) id: ChildId,
    pub(crate) slot: Arc<ActorSlot<Envelope<M>>>,
    pub(crate) gauge: MailboxGauge,
}

/// Sends messages to the running incarnation of a worker. Cheap to clone.
///
/// A message is handled at most once. If an incarnation ends, the messages that wait for it are lost. Their callers get
/// [`CallError::Lost`].
pub struct Address<M: Send + 'static> {
    endpoint: Arc<WorkerEndpoint<M>>,
}

/// The error for a message that was not sent. It returns the message.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError<M> {
    /// No incarnation accepts messages now: the worker is not started, has ended, or waits for its restart.
    #[error("the actor is not running")]
    NotRunning(M),
    /// The queue is full.
    #[error("the actor's queue is full")]
    Full(M),
    /// There was no room in the queue before the deadline.
    #[error("the actor's queue was full until the deadline")]
    DeadlinePassed(M),
}

impl<M> SendError<M> {
    /// The returned message.
    pub fn into_message(self) -> M {
        match self {
            Self::NotRunning(message) | Self::Full(message) | Self::DeadlinePassed(message) => message,
        }
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning(_) => "NotRunning(..)",
            Self::Full(_) => "Full(..)",
            Self::DeadlinePassed(_) => "DeadlinePassed(..)",
        })
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) const fn new(endpoint: Arc<WorkerEndpoint<M>>) -> Self {
        Self { endpoint }
    }

    /// The worker's id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        &self.endpoint.id
    }

    /// Whether an incarnation accepts messages now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.endpoint.slot.running().is_some()
    }

    /// How many messages wait.
    #[must_use]
    pub fn queue(&self) -> usize {
        self.endpoint.gauge.waiting()
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// If no incarnation runs or the queue is full. The error returns the message.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        match Arc::clone(&self.endpoint.gauge.permits).try_acquire_owned() {
            Ok(permit) => self.deliver(message, permit),
            Err(TryAcquireError::NoPermits) => Err(SendError::Full(message)),
            // The semaphore is never closed.
            Err(TryAcquireError::Closed) => Err(SendError::NotRunning(message)),
        }
    }

    /// Sends a message as soon as the queue has room. Waiting senders are served in order.
    ///
    /// # Errors
    /// If no incarnation runs, or there was no room before the deadline. The error returns the message.
    pub async fn send_with_deadline(&self, message: M, deadline: Deadline) -> Result<(), SendError<M>> {
        let acquire = Arc::clone(&self.endpoint.gauge.permits).acquire_owned();
        match with_deadline(&SystemClock, deadline, acquire).await {
            Ok(Ok(permit)) => self.deliver(message, permit),
            Ok(Err(_closed)) => Err(SendError::NotRunning(message)),
            Err(TimedOut) => Err(SendError::DeadlinePassed(message)),
        }
    }

    fn deliver(&self, message: M, permit: OwnedSemaphorePermit) -> Result<(), SendError<M>> {
        let Some(actor) = self.endpoint.slot.running() else { return Err(SendError::NotRunning(message)) };
        match actor.send_message(Envelope::Message { message, permit }) {
            Ok(()) => Ok(()),
            Err(MessagingErr::SendErr(Envelope::Message { message, .. })) => {
                Err(SendError::NotRunning(message))
            }
            Err(error) => {
                // `ractor` returns other errors only for a wrong message type, and an `ActorRef` excludes that.
                tracing::error!(actor = %self.endpoint.id, %error, "a message is lost");
                Ok(())
            }
        }
    }

    /// Sends a message with a [`Reply`], and waits for the answer until the deadline. Sending itself does not wait. A
    /// later answer is dropped, but the actor may have done the work.
    ///
    /// # Errors
    /// If the message was not sent, or no answer came.
    pub async fn call<R: Send + 'static>(
        &self,
        deadline: Deadline,
        message: impl FnOnce(Reply<R>) -> M,
    ) -> Result<R, CallError> {
        let (reply, answer) = Reply::new(deadline);
        self.send(message(reply)).map_err(|error| match error {
            SendError::Full(_) => CallError::Full,
            SendError::NotRunning(_) | SendError::DeadlinePassed(_) => CallError::NotRunning,
        })?;
        let answer = with_deadline(&SystemClock, deadline, answer).await;
        answer.map_err(|TimedOut| CallError::DeadlinePassed)?.map_err(|_| CallError::Lost)
    }

    /// The number of the last incarnation; `None` before the first.
    #[must_use]
    pub fn incarnation(&self) -> Option<u64> {
        self.endpoint.slot.incarnation().map(|incarnation| incarnation.number)
    }

    /// Monitors the last incarnation; `None` before the first.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.endpoint.slot.incarnation().map(|incarnation| Monitor::of(&incarnation))
    }

    /// Kills the running incarnation at its next await. The supervisor treats this as an abnormal exit.
    pub fn kill(&self) {
        if let Some(incarnation) = self.endpoint.slot.incarnation() {
            incarnation.kill();
        }
    }
}

impl<M: Send + 'static> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { endpoint: Arc::clone(&self.endpoint) }
    }
}

impl<M: Send + 'static> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.endpoint.id)
    }
}
