//! The conversation is away: what becomes of messages meanwhile.
//!
//! What is meant for the running turn goes into the errand's bounded inbox, with its reply inside; an interruption acts at
//! once; all else waits for the errand's end. State: the inbox's end and those who wait, gone with the actor; a post that
//! is lost with it tells its sender so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use conjure_conversation::{Post, PostKind, Receipt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::error::SessionError;
use super::mail::{Parcel, Return};
use super::message::{Answer, SessionMessage};
use super::shared::Shared;
use super::subscription::Accepted;
use crate::supervision::Job;

/// How many posts wait for a turn, and how many messages for an errand's end.
pub(crate) const INBOX: usize = 64;

/// An errand that is under way, as its actor sees it.
pub(crate) struct Away {
    pub(crate) errand: u64,
    pub(crate) cancel: CancellationToken,
    pub(crate) inbox: mpsc::Sender<Post>,
    pub(crate) job: Job,
    /// Whoever waits for the end that was asked for.
    pub(crate) interrupts: Vec<Answer<()>>,
    /// Set by the errand when it ends with no turn under way, and all of that recorded.
    pub(crate) turn_is_over: Arc<AtomicBool>,
}

impl Away {
    /// Takes a message into the errand's inbox, or acts; gives it back where it must wait for the errand's end. So many may wait
    /// for their turn as the tenant's terms say.
    pub(crate) fn take_in(
        &mut self,
        message: SessionMessage,
        back: Return,
        shared: &Arc<Shared>,
    ) -> Option<(SessionMessage, Return)> {
        match message {
            SessionMessage::Interrupt { reply } => {
                self.cancel.cancel();
                self.interrupts.push(reply);
                None
            }
            SessionMessage::Send { input, limits, reply } => match self.inbox.try_reserve() {
                Ok(permit) => {
                    let (again, shared) = (limits.clone(), Arc::clone(shared));
                    let most = shared.account.terms().queued_messages;
                    let acknowledge = move |receipt| match receipt {
                        // The errand broke off before it looked: it is sent again.
                        Receipt::NotTaken(input) => {
                            drop(Parcel::again(SessionMessage::Send { input, limits: again, reply }, back));
                        }
                        receipt => reply.send(accepted(receipt, &shared)),
                    };
                    let post = Post::new(PostKind::Queue, input, acknowledge).within(limits);
                    permit.send(post.at_most(most));
                    None
                }
                Err(mpsc::error::TrySendError::Full(())) => {
                    reply.send(Err(SessionError::overloaded("the running turn's inbox")));
                    None
                }
                Err(mpsc::error::TrySendError::Closed(())) => {
                    Some((SessionMessage::Send { input, limits, reply }, back))
                }
            },
            SessionMessage::Steer { input, reply } => match self.inbox.try_reserve() {
                Ok(permit) => {
                    let shared = Arc::clone(shared);
                    let acknowledge = move |receipt| reply.send(steered(receipt, &shared));
                    permit.send(Post::new(PostKind::Steer, input, acknowledge));
                    None
                }
                Err(mpsc::error::TrySendError::Full(())) => {
                    reply.send(Err(SessionError::overloaded("the running turn's inbox")));
                    None
                }
                Err(mpsc::error::TrySendError::Closed(())) => {
                    Some((SessionMessage::Steer { input, reply }, back))
                }
            },
            SessionMessage::ChangeArtifacts { change, reply } => match self.inbox.try_reserve() {
                Ok(permit) => {
                    let (again, shared) = (change.clone(), Arc::clone(shared));
                    let acknowledge = move |receipt| match receipt {
                        Receipt::Recorded => reply.send(Ok(())),
                        // The turn is over: it is sent again.
                        Receipt::NotTaken(_) => {
                            drop(Parcel::again(
                                SessionMessage::ChangeArtifacts { change: again, reply },
                                back,
                            ));
                        }
                        other => reply.send(Err(not_taken(other, &shared))),
                    };
                    permit.send(Post::artifacts(change, acknowledge));
                    None
                }
                Err(mpsc::error::TrySendError::Full(())) => {
                    reply.send(Err(SessionError::overloaded("the running turn's inbox")));
                    None
                }
                Err(mpsc::error::TrySendError::Closed(())) => {
                    Some((SessionMessage::ChangeArtifacts { change, reply }, back))
                }
            },
            other => Some((other, back)),
        }
    }
}

fn accepted(receipt: Receipt, shared: &Shared) -> Result<Accepted, SessionError> {
    match receipt {
        Receipt::Queued { id, seq } => Ok(Accepted::Queued { id, seq }),
        other => Err(not_taken(other, shared)),
    }
}

fn steered(receipt: Receipt, shared: &Shared) -> Result<u64, SessionError> {
    match receipt {
        Receipt::Steered { seq } => Ok(seq),
        other => Err(not_taken(other, shared)),
    }
}

fn not_taken(receipt: Receipt, shared: &Shared) -> SessionError {
    match receipt {
        Receipt::Refused(rejection) => shared.refused(rejection),
        Receipt::Failed(error) => error.into(),
        Receipt::NotTaken(_) => SessionError::NotRunning,
        Receipt::Steered { .. } | Receipt::Queued { .. } | Receipt::Recorded | Receipt::Unknown => {
            SessionError::Lost
        }
    }
}

/// Answers a message that is not taken up.
pub(crate) fn refuse(message: SessionMessage, error: SessionError) {
    fn tell<T: Send + 'static>(reply: Answer<T>, error: SessionError) {
        reply.send(Err(error));
    }
    match message {
        SessionMessage::Send { reply, .. } => tell(reply, error),
        SessionMessage::Steer { reply, .. } => tell(reply, error),
        SessionMessage::Subscribe { reply, .. } => tell(reply, error),
        SessionMessage::Listing { reply } => tell(reply, error),
        SessionMessage::Files { reply } => tell(reply, error),
        SessionMessage::OpenFile { reply, .. } => tell(reply, error),
        SessionMessage::StoreFile { reply, .. } => tell(reply, error),
        SessionMessage::ListArtifacts { reply } => tell(reply, error),
        SessionMessage::Artifacts(request) => request.refuse(error),
        SessionMessage::Executor { reply } => tell(reply, error),
        SessionMessage::Snapshot { reply } => tell(reply, error),
        SessionMessage::TakeBack { reply, .. }
        | SessionMessage::ChangeArtifacts { reply, .. }
        | SessionMessage::Interrupt { reply }
        | SessionMessage::Decide { reply, .. }
        | SessionMessage::Close { reply } => tell(reply, error),
    }
}
