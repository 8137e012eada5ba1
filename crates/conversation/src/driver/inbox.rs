//! The inbox of a running turn: each message is acknowledged once.
//!
//! A message owns the callback of its sender. However it ends (recorded, rejected, left when the turn ended, lost with a dropped driver),
//! the sender gets exactly one [`Receipt`].

use std::fmt;

use crate::content::block::Block;
use crate::driver::conversation::{Conversation, SubmitError};
use crate::events::event_log::EventLogError;
use crate::machine::command::{CommandKind, Rejection};
use crate::session::queue::QueueId;
use crate::state::limits::Limits;

/// The kind of a message into a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxMessageKind {
    /// Input for the running turn: the model reads it after the next results.
    Steer,
    /// Input for a turn of its own, after this one and those that were queued before.
    Queue,
    /// A command that may be given while a turn runs: a decision on a call, the result of a call, or a change of the session's artifacts or settings.
    Command,
}

/// What happened to a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Receipt {
    /// It is part of the running turn.
    Steered {
        /// The sequence number of its event.
        seq: u64,
    },
    /// It waits in the queue.
    Queued {
        /// Its id in the queue.
        id: QueueId,
        /// The sequence number of its event.
        seq: u64,
    },
    /// It is recorded.
    Recorded,
    /// The state machine rejected it.
    Refused(Rejection),
    /// The event log failed. It is not known whether the message was recorded.
    Failed(EventLogError),
    /// No turn is running any more. This is the unprocessed input; it is empty for a command.
    Returned(Vec<Block>),
    /// The driver ended while it recorded the message. It is not known whether the message was recorded.
    Unknown,
}

type OnReceipt = Box<dyn FnOnce(Receipt) + Send>;

/// A message into a running turn, with the callback that reports its receipt.
pub struct InboxMessage {
    kind: InboxMessageKind,
    /// `None` once it was submitted.
    command: Option<Box<CommandKind>>,
    /// The longest queue after this message was added.
    max_queued: usize,
    on_receipt: Option<OnReceipt>,
}

impl InboxMessage {
    /// A message with this input. `acknowledge` is called once, and must not block.
    pub fn new(
        kind: InboxMessageKind,
        input: Vec<Block>,
        acknowledge: impl FnOnce(Receipt) + Send + 'static,
    ) -> Self {
        let command = match kind {
            InboxMessageKind::Queue => CommandKind::Queue { input, limits: None },
            _ => CommandKind::Steer { input },
        };
        Self::with_command(kind, command, acknowledge)
    }

    /// A command, of kind [`InboxMessageKind::Command`].
    pub fn command(command: CommandKind, acknowledge: impl FnOnce(Receipt) + Send + 'static) -> Self {
        Self::with_command(InboxMessageKind::Command, command, acknowledge)
    }

    fn with_command(
        kind: InboxMessageKind,
        command: CommandKind,
        acknowledge: impl FnOnce(Receipt) + Send + 'static,
    ) -> Self {
        let (command, on_receipt) = (Some(Box::new(command)), Some(Box::new(acknowledge) as OnReceipt));
        Self { kind, command, max_queued: usize::MAX, on_receipt }
    }

    /// Sets the limits of its turn, for [`InboxMessageKind::Queue`].
    #[must_use]
    pub fn with_limits(mut self, own: Option<Limits>) -> Self {
        if let Some(CommandKind::Queue { limits, .. }) = self.command.as_deref_mut() {
            *limits = own;
        }
        self
    }

    /// Sets the maximum length of the queue, for [`InboxMessageKind::Queue`].
    #[must_use]
    pub const fn with_queue_limit(mut self, most: usize) -> Self {
        self.max_queued = most;
        self
    }

    /// The kind of the message.
    #[must_use]
    pub const fn kind(&self) -> InboxMessageKind {
        self.kind
    }

    /// Submits the message and reports its receipt. When no turn is running, a steering message is returned to its sender.
    ///
    /// # Errors
    /// When the event log fails.
    pub async fn submit(mut self, conversation: &mut Conversation) -> Result<(), EventLogError> {
        if self.kind == InboxMessageKind::Steer && conversation.state().turn().is_none() {
            return Ok(());
        }
        let Some(command) = self.command.take() else { return Ok(()) };
        if self.kind == InboxMessageKind::Queue && conversation.state().queue().len() >= self.max_queued {
            self.acknowledge(Receipt::Refused(Rejection::QueueFull { limit: self.max_queued }));
            return Ok(());
        }
        match conversation.submit(*command).await {
            Ok(()) => {
                let seq = conversation.seq().saturating_sub(1);
                let last = conversation.state().queue().last();
                self.acknowledge(match (self.kind, last) {
                    (InboxMessageKind::Command, _) => Receipt::Recorded,
                    (InboxMessageKind::Queue, Some(queued)) => Receipt::Queued { id: queued.id, seq },
                    _ => Receipt::Steered { seq },
                });
                Ok(())
            }
            Err(SubmitError::Rejected(rejection)) => {
                self.acknowledge(Receipt::Refused(rejection));
                Ok(())
            }
            Err(SubmitError::EventLog(error)) => {
                self.acknowledge(Receipt::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// Reports to the sender that the event log has failed.
    pub fn fail(mut self, error: EventLogError) {
        self.command = None;
        self.acknowledge(Receipt::Failed(error));
    }

    fn acknowledge(&mut self, receipt: Receipt) {
        if let Some(acknowledge) = self.on_receipt.take() {
            acknowledge(receipt);
        }
    }
}

impl Drop for InboxMessage {
    fn drop(&mut self) {
        let receipt = match self.command.take().map(|command| *command) {
            Some(CommandKind::Steer { input } | CommandKind::Queue { input, .. }) => Receipt::Returned(input),
            Some(_) => Receipt::Returned(Vec::new()),
            None => Receipt::Unknown,
        };
        self.acknowledge(receipt);
    }
}

impl fmt::Debug for InboxMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxMessage").field("kind", &self.kind).finish_non_exhaustive()
    }
}
