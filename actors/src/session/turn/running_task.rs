//! Routes messages while a task has the conversation.
//!
//! Messages for the running turn go to the task's bounded inbox, with their replies. An interruption acts at once. A
//! change of the model, the instructions or the tools is refused while a turn runs. All other messages wait for the end
//! of the task.
//!
//! State: the inbox's sender, and the replies to interruptions. They end with the actor, and the senders of lost
//! messages get an error.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use conjure_base::TurnId;
use conjure_conversation::{CommandKind, InboxMessage, InboxMessageKind, Receipt, Rejection};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::session::error::{ReplyTo, SessionError};
use crate::session::lifecycle::actor_message::{ReturnChannel, ReturnableRequest};
use crate::session::lifecycle::session_entry::SessionEntry;
use crate::session::message::{SessionRequest, SessionStatus};
use crate::session::turn_handle::Accepted;
use crate::supervision::Job;

/// How many messages the inbox of a turn holds, and how many may wait for the end of a task.
pub(crate) const INBOX_CAPACITY: usize = 64;

/// A running task, as the actor sees it.
pub(crate) struct RunningTask {
    pub(crate) id: u64,
    pub(crate) cancel: CancellationToken,
    pub(crate) inbox: mpsc::Sender<InboxMessage>,
    pub(crate) job: Job,
    /// The callers that wait for the end of an interrupted turn.
    pub(crate) interrupts: Vec<ReplyTo<()>>,
    /// Set by the task when no turn runs any more and everything is recorded.
    pub(crate) turn_ended: Arc<AtomicBool>,
    /// Whether the task drives a turn.
    pub(crate) turn: DrivenTurn,
}

/// Whether a task drives a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrivenTurn {
    None,
    /// It drives the turn that follows this one; `None`: the session's first turn.
    After(Option<TurnId>),
}

impl RunningTask {
    /// Passes a message to the running turn, interrupts the turn, or refuses the message. Returns a message that must
    /// wait for the end of the task.
    pub(crate) fn route(
        &mut self,
        message: SessionRequest,
        back: ReturnChannel,
        entry: &Arc<SessionEntry>,
    ) -> Option<(SessionRequest, ReturnChannel)> {
        if let SessionRequest::Interrupt { reply } = message {
            self.cancel.cancel();
            self.interrupts.push(reply);
            return None;
        }
        let changes_requests = match &message {
            SessionRequest::SetModel { .. } => true,
            SessionRequest::Submit { command, .. } => changes_requests(command),
            _ => false,
        };
        if changes_requests && self.has_turn(entry) {
            reject(message, Rejection::TurnRunning.into());
            return None;
        }
        let is_for_turn = match &message {
            SessionRequest::Send { .. } | SessionRequest::Steer { .. } => true,
            SessionRequest::Submit { command, .. } => !matches!(command, CommandKind::Unqueue { .. }),
            _ => false,
        };
        if changes_requests || !is_for_turn {
            return Some((message, back));
        }
        match self.inbox.try_reserve() {
            Ok(permit) => permit.send(inbox_message(message, back, entry)?),
            Err(mpsc::error::TrySendError::Full(())) => {
                reject(message, SessionError::overloaded("the running turn's inbox"));
            }
            Err(mpsc::error::TrySendError::Closed(())) => return Some((message, back)),
        }
        None
    }

    /// Whether a turn runs or is about to run. A turn whose end was reported is over, even if the task still works.
    fn has_turn(&self, entry: &SessionEntry) -> bool {
        let projection = &entry.observer.projection;
        projection.status() != SessionStatus::Idle || self.turn == DrivenTurn::After(projection.last_turn())
    }
}

/// Whether the command changes what the model is sent, which no running turn may see.
pub(crate) fn changes_requests(command: &CommandKind) -> bool {
    matches!(command, CommandKind::UpdateProfile { change } if change.changes_requests())
}

/// The message for the turn's inbox, which carries the reply. If the turn returns the message unprocessed, it goes back
/// to its sender. Only the sender of a steering message gets [`SessionError::NotRunning`] instead.
fn inbox_message(
    message: SessionRequest,
    back: ReturnChannel,
    entry: &Arc<SessionEntry>,
) -> Option<InboxMessage> {
    let entry = Arc::clone(entry);
    Some(match message {
        SessionRequest::Send { input, limits, reply } => {
            let (queue_limit, own_limits) = (entry.account.limits().queued_messages, limits.clone());
            let acknowledge = move |receipt| match receipt {
                Receipt::Returned(input) => {
                    drop(ReturnableRequest::requeue(SessionRequest::Send { input, limits, reply }, back));
                }
                receipt => reply.send(accepted(receipt, &entry)),
            };
            let message = InboxMessage::new(InboxMessageKind::Queue, input, acknowledge);
            message.with_limits(own_limits).with_queue_limit(queue_limit)
        }
        SessionRequest::Steer { input, reply } => {
            let acknowledge = move |receipt| reply.send(steered(receipt, &entry));
            InboxMessage::new(InboxMessageKind::Steer, input, acknowledge)
        }
        SessionRequest::Submit { command, reply } => {
            let retained = command.clone();
            InboxMessage::command(command, move |receipt| match receipt {
                Receipt::Recorded => reply.send(Ok(())),
                Receipt::Returned(_) => {
                    let message = SessionRequest::Submit { command: retained, reply };
                    drop(ReturnableRequest::requeue(message, back));
                }
                other => reply.send(Err(delivery_error(other, &entry))),
            })
        }
        _ => return None,
    })
}

fn accepted(receipt: Receipt, entry: &SessionEntry) -> Result<Accepted, SessionError> {
    match receipt {
        Receipt::Queued { id, seq } => Ok(Accepted::Queued { id, seq }),
        other => Err(delivery_error(other, entry)),
    }
}

fn steered(receipt: Receipt, entry: &SessionEntry) -> Result<u64, SessionError> {
    match receipt {
        Receipt::Steered { seq } => Ok(seq),
        other => Err(delivery_error(other, entry)),
    }
}

fn delivery_error(receipt: Receipt, entry: &SessionEntry) -> SessionError {
    match receipt {
        Receipt::Refused(rejection) => entry.rejection_error(rejection),
        Receipt::Failed(error) => error.into(),
        Receipt::Returned(_) => SessionError::NotRunning,
        Receipt::Steered { .. } | Receipt::Queued { .. } | Receipt::Recorded | Receipt::Unknown => {
            SessionError::Lost
        }
    }
}

/// Answers a message with this error instead of handling it.
pub(crate) fn reject(message: SessionRequest, error: SessionError) {
    fn send_error<T: Send + 'static>(reply: ReplyTo<T>, error: SessionError) {
        reply.send(Err(error));
    }
    match message {
        SessionRequest::Send { reply, .. } => send_error(reply, error),
        SessionRequest::Steer { reply, .. } => send_error(reply, error),
        SessionRequest::Subscribe { reply, .. } => send_error(reply, error),
        SessionRequest::ListFiles { reply } => send_error(reply, error),
        SessionRequest::Files { reply } => send_error(reply, error),
        SessionRequest::OpenFile { reply, .. } => send_error(reply, error),
        SessionRequest::StoreFile { reply, .. } => send_error(reply, error),
        SessionRequest::ListArtifacts { reply } => send_error(reply, error),
        SessionRequest::Artifacts(request) => request.reject(error),
        SessionRequest::Executor { reply } => send_error(reply, error),
        SessionRequest::Snapshot { reply } => send_error(reply, error),
        SessionRequest::Submit { reply, .. }
        | SessionRequest::SetModel { reply, .. }
        | SessionRequest::Interrupt { reply }
        | SessionRequest::Close { reply } => send_error(reply, error),
    }
}
