//! What is in the mailbox of a session's actor.

use conjure_base::Deadline;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::conversation_task::FinishedTask;
use super::lease::LeaseLoss;
use super::message::SessionRequest;
use crate::supervision::Address;

/// What is in the actor's mailbox.
pub(crate) enum ActorMessage {
    Request(ReturnableRequest),
    /// Somebody attached: what was under way goes on.
    Attached,
    /// What the journal failed is tried again.
    Retry,
    TaskFinished {
        task: u64,
        finished: FinishedTask,
    },
    LeaseLost(LeaseLoss),
}

/// A message on its way. One that nobody took up, because the actor that it waited for ended, goes back to whoever sent it
/// and is sent again: nothing was done with it.
pub(crate) struct ReturnableRequest {
    content: Option<(SessionRequest, ReturnChannel)>,
}

/// Where a message goes back to.
pub(crate) struct ReturnChannel(oneshot::Sender<SessionRequest>);

impl ReturnableRequest {
    pub(crate) fn new(message: SessionRequest) -> (Self, oneshot::Receiver<SessionRequest>) {
        let (back, returned) = oneshot::channel();
        (Self::requeue(message, ReturnChannel(back)), returned)
    }

    /// One that was opened, and cannot be taken up yet.
    pub(crate) const fn requeue(message: SessionRequest, back: ReturnChannel) -> Self {
        Self { content: Some((message, back)) }
    }

    pub(crate) fn take(mut self) -> Option<(SessionRequest, ReturnChannel)> {
        self.content.take()
    }
}

impl Drop for ReturnableRequest {
    fn drop(&mut self) {
        if let Some((message, ReturnChannel(back))) = self.content.take() {
            // Whoever sent it may have stopped waiting.
            let _ = back.send(message);
        }
    }
}

/// Sends to the actor itself, waiting for room; not while the actor stops, when it takes nothing any more.
pub(crate) async fn send_to_self(
    address: &Address<ActorMessage>,
    stopping: &CancellationToken,
    message: ActorMessage,
) {
    tokio::select! {
        biased;
        () = stopping.cancelled() => {}
        // Where nobody is there, nobody wants it.
        _ = address.send_with_deadline(message, Deadline::NEVER) => {}
    }
}
