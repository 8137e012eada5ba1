//! The messages in the mailbox of a session's actor.

use conjure_base::Deadline;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::session::log::lease::LeaseLoss;
use crate::session::message::SessionRequest;
use crate::session::turn::conversation_task::FinishedTask;
use crate::supervision::Address;

/// A message to a session's actor.
pub(crate) enum ActorMessage {
    Request(ReturnableRequest),
    /// Work may be able to continue: a handle attached, the tenant's limits changed, or a tool result is overdue.
    ContinueWork,
    /// The pause after a failure of the journal is over: the next attempt starts.
    Retry,
    TaskFinished {
        task: u64,
        finished: FinishedTask,
    },
    LeaseLost(LeaseLoss),
}

/// A request on its way to the actor. If the actor ends before it handles the request, the request is returned to its
/// sender, which sends it again. Nothing was done with it.
pub(crate) struct ReturnableRequest {
    content: Option<(SessionRequest, ReturnChannel)>,
}

/// The channel that returns a request to its sender.
pub(crate) struct ReturnChannel(oneshot::Sender<SessionRequest>);

impl ReturnableRequest {
    pub(crate) fn new(message: SessionRequest) -> (Self, oneshot::Receiver<SessionRequest>) {
        let (back, returned) = oneshot::channel();
        (Self::requeue(message, ReturnChannel(back)), returned)
    }

    /// Wraps a request that the actor has unwrapped and cannot handle yet.
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
            // The sender may have stopped waiting.
            let _ = back.send(message);
        }
    }
}

/// Sends a message to this actor itself, and waits for room in its mailbox. Gives up when the actor stops.
pub(crate) async fn send_to_self(
    address: &Address<ActorMessage>,
    stopping: &CancellationToken,
    message: ActorMessage,
) {
    tokio::select! {
        biased;
        () = stopping.cancelled() => {}
        // If no actor runs, the message is not needed.
        _ = address.send_with_deadline(message, Deadline::NEVER) => {}
    }
}
