//! Where messages to a worker go: bounded, and good over its restarts.
//!
//! `ractor`'s mailboxes are unbounded, so admission is bounded before: each message carries a permit out of a fixed number,
//! which comes back when the message is taken up or lost with its receiver. A full queue is a value, at once.

use std::fmt;
use std::sync::Arc;

use conjure_base::{Clock, Deadline, SystemClock};
use ractor::MessagingErr;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use super::actor_slot::ActorSlot;
use super::call::{CallError, Reply};
use super::id::ChildId;
use super::monitor::{Down, MessageMonitor, Monitor};
use super::node::MailboxGauge;

/// What is in a worker's mailbox.
pub(crate) enum Envelope<M> {
    Message {
        message: M,
        permit: OwnedSemaphorePermit,
    },
    /// It may have been idle for long enough.
    Idle,
}

/// The place of a worker, over all its incarnations, and how many messages may wait for it.
pub(crate) struct WorkerEndpoint<M: Send + 'static> {
    pub(crate) id: ChildId,
    pub(crate) slot: Arc<ActorSlot<Envelope<M>>>,
    pub(crate) gauge: MailboxGauge,
}

/// Sends messages to a worker: to whichever incarnation runs. Cheap to clone.
///
/// A message is taken up at most once. Those that wait for an incarnation that ends are lost with it; a call then says
/// [`CallError::Lost`].
pub struct Address<M: Send + 'static> {
    endpoint: Arc<WorkerEndpoint<M>>,
}

/// A message that was not sent, given back.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError<M> {
    /// No incarnation takes messages now: not started, ended, or waiting for its restart.
    #[error("the actor is not running")]
    NotRunning(M),
    /// As many messages wait as may.
    #[error("the actor's queue is full")]
    Full(M),
    /// There was no room before the deadline.
    #[error("the actor's queue was full until the deadline")]
    DeadlinePassed(M),
}

impl<M> SendError<M> {
    /// The message.
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

    /// Whether an incarnation takes messages now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.endpoint.slot.current().is_some()
    }

    /// How many messages wait.
    #[must_use]
    pub fn queue(&self) -> usize {
        self.endpoint.gauge.waiting()
    }

    /// Sends without waiting.
    ///
    /// # Errors
    /// When nobody is there, or the queue is full; the message comes back.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        match Arc::clone(&self.endpoint.gauge.room).try_acquire_owned() {
            Ok(permit) => self.deliver(message, permit),
            Err(TryAcquireError::NoPermits) => Err(SendError::Full(message)),
            // The room is never closed.
            Err(TryAcquireError::Closed) => Err(SendError::NotRunning(message)),
        }
    }

    /// Sends as soon as there is room; those that wait are served in their order.
    ///
    /// # Errors
    /// When nobody is there, or there was no room before the deadline; the message comes back.
    pub async fn send_with_deadline(&self, message: M, deadline: Deadline) -> Result<(), SendError<M>> {
        let room = Arc::clone(&self.endpoint.gauge.room).acquire_owned();
        tokio::select! {
            biased;
            permit = room => match permit {
                Ok(permit) => self.deliver(message, permit),
                Err(_closed) => Err(SendError::NotRunning(message)),
            },
            () = SystemClock.sleep_until(deadline) => Err(SendError::DeadlinePassed(message)),
        }
    }

    fn deliver(&self, message: M, permit: OwnedSemaphorePermit) -> Result<(), SendError<M>> {
        let Some(actor) = self.endpoint.slot.current() else { return Err(SendError::NotRunning(message)) };
        match actor.send_message(Envelope::Message { message, permit }) {
            Ok(()) => Ok(()),
            Err(MessagingErr::SendErr(Envelope::Message { message, .. })) => {
                Err(SendError::NotRunning(message))
            }
            Err(error) => {
                // These are of actors of another type, and an `ActorRef` has the type of its messages.
                tracing::error!(actor = %self.endpoint.id, %error, "a message is lost");
                Ok(())
            }
        }
    }

    /// Sends a message that carries a [`Reply`], and waits for the answer until the deadline. An answer that comes later
    /// is dropped; the work for it may have been done.
    ///
    /// # Errors
    /// When the message was not sent, or no answer came.
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
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| CallError::Lost),
            () = SystemClock.sleep_until(deadline) => Err(CallError::DeadlinePassed),
        }
    }

    /// The number of the last incarnation; `None` before the first.
    #[must_use]
    pub fn incarnation(&self) -> Option<u64> {
        self.endpoint.slot.incarnation().map(|incarnation| incarnation.number)
    }

    /// Watches the last incarnation; `None` before the first.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.endpoint.slot.incarnation().map(|incarnation| Monitor::of(&incarnation))
    }

    /// Has one message sent to `watcher` when the last incarnation is gone; `None` before the first. `message` should do
    /// no more than make a message; where `watcher` is gone or full by then, it is dropped.
    #[must_use]
    pub fn monitor_into<W: Send + 'static>(
        &self,
        watcher: Address<W>,
        message: impl FnOnce(Down) -> W + Send + 'static,
    ) -> Option<MessageMonitor> {
        let incarnation = self.endpoint.slot.incarnation()?;
        Some(MessageMonitor::of(&incarnation, move |down| {
            if let Err(error) = watcher.send(message(down)) {
                tracing::debug!(watcher = %watcher.id(), %error, "an actor misses the end of another");
            }
        }))
    }

    /// Ends the incarnation that runs at whatever it awaits, without asking; its supervisor takes that for abnormal.
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
