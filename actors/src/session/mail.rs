//! What is in the mailbox of a session's actor.

use conjure_base::Deadline;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::lease::LeaseEnd;
use super::message::SessionMessage;
use super::work::Outcome;
use crate::supervision::Address;

/// What is in the actor's mailbox.
pub(crate) enum Mail {
    Said(Parcel),
    /// Somebody attached: what was under way goes on.
    Attached,
    /// What the journal failed is tried again.
    TryAgain,
    Back {
        errand: u64,
        outcome: Outcome,
    },
    LeaseOver(LeaseEnd),
}

/// A message on its way. One that nobody took up, because the actor that it waited for ended, goes back to whoever sent it
/// and is sent again: nothing was done with it.
pub(crate) struct Parcel {
    content: Option<(SessionMessage, Return)>,
}

/// Where a message goes back to.
pub(crate) struct Return(oneshot::Sender<SessionMessage>);

impl Parcel {
    pub(crate) fn new(message: SessionMessage) -> (Self, oneshot::Receiver<SessionMessage>) {
        let (back, returned) = oneshot::channel();
        (Self::again(message, Return(back)), returned)
    }

    /// One that was opened, and cannot be taken up yet.
    pub(crate) const fn again(message: SessionMessage, back: Return) -> Self {
        Self { content: Some((message, back)) }
    }

    pub(crate) fn open(mut self) -> Option<(SessionMessage, Return)> {
        self.content.take()
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some((message, Return(back))) = self.content.take() {
            // Whoever sent it may have stopped waiting.
            let _ = back.send(message);
        }
    }
}

/// Sends to the actor itself, waiting for room; not while the actor stops, when it takes nothing any more.
pub(crate) async fn tell(address: &Address<Mail>, stopping: &CancellationToken, mail: Mail) {
    tokio::select! {
        biased;
        () = stopping.cancelled() => {}
        // Where nobody is there, nobody wants it.
        _ = address.send_by(mail, Deadline::NEVER) => {}
    }
}
