//! The handle of a turn that a message started. It follows the turn to its end over its own subscription.

use std::collections::VecDeque;

use conjure_base::TurnId;
use conjure_conversation::{EventKind, Message, QueueId, SessionEventKind, TurnStop};

use super::error::SessionError;
use super::subscription::{Subscription, SubscriptionItem, Update};

/// An event of a turn.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are updates")]
pub enum TurnEvent {
    /// An update of the session's subscription, from the turn's start on.
    Update(Update),
    /// The turn has ended. This is the last event.
    Ended {
        /// The id of the turn.
        turn: TurnId,
        /// Why it ended.
        stop: TurnStop,
    },
    /// The message was removed from the queue before its turn began. This is the last event.
    Unqueued,
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The text of the model's last message. Empty if the turn ended before there was one.
    pub text: String,
    /// Why the turn ended.
    pub stop: TurnStop,
}

/// The handle of a turn, which follows the turn to its end. Dropping the handle does not end the turn.
#[derive(Debug)]
pub struct TurnHandle {
    subscription: Subscription,
    accepted: Accepted,
    phase: TurnPhase,
    ready: VecDeque<TurnEvent>,
}

/// How a session accepted a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The turn of the message has started.
    Started {
        /// The id of the turn.
        turn: TurnId,
        /// The sequence number of the event that records the start.
        seq: u64,
    },
    /// The message waits in the queue.
    Queued {
        /// The message's id in the queue.
        id: QueueId,
        /// The sequence number of the event that records the message.
        seq: u64,
    },
}

impl Accepted {
    /// The sequence number of the event that records the message.
    #[must_use]
    pub const fn seq(self) -> u64 {
        match self {
            Self::Started { seq, .. } | Self::Queued { seq, .. } => seq,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnPhase {
    Waiting(QueueId),
    Running(TurnId),
    Over,
}

impl TurnHandle {
    pub(crate) fn new(subscription: Subscription, accepted: Accepted) -> Self {
        let phase = match accepted {
            Accepted::Started { turn, .. } => TurnPhase::Running(turn),
            Accepted::Queued { id, .. } => TurnPhase::Waiting(id),
        };
        Self { subscription, accepted, phase, ready: VecDeque::new() }
    }

    /// How the session accepted the message.
    #[must_use]
    pub const fn accepted(&self) -> Accepted {
        self.accepted
    }

    /// The subscription behind the handle. If nothing was read yet, it begins with the event that records the message.
    #[must_use]
    pub fn into_subscription(self) -> Subscription {
        self.subscription
    }

    /// Waits for the next event of the turn. Returns `None` after the last event and after an error. Cancel safe:
    /// dropping the future loses nothing.
    ///
    /// # Errors
    /// As for [`Subscription::next`]. The turn may continue later nevertheless.
    pub async fn next(&mut self) -> Option<Result<TurnEvent, SessionError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.phase == TurnPhase::Over {
                return None;
            }
            match self.subscription.next_item().await {
                Err(error) => {
                    self.phase = TurnPhase::Over;
                    return Some(Err(error));
                }
                Ok(item) => self.accept(item),
            }
        }
    }

    /// Waits for the end of the turn, and returns why it ended.
    ///
    /// # Errors
    /// As for [`TurnHandle::next`]; [`SessionError::NotRunning`] when the message was removed from the queue.
    pub async fn end(mut self) -> Result<TurnStop, SessionError> {
        while let Some(event) = self.next().await {
            match event? {
                TurnEvent::Ended { stop, .. } => return Ok(stop),
                TurnEvent::Unqueued => break,
                TurnEvent::Update(_) => {}
            }
        }
        Err(SessionError::NotRunning)
    }

    /// Waits for the end of the turn, and returns the model's last message and why the turn ended.
    ///
    /// # Errors
    /// As for [`TurnHandle::end`].
    pub async fn answer(mut self) -> Result<Answer, SessionError> {
        let mut text = String::new();
        while let Some(event) = self.next().await {
            match event? {
                TurnEvent::Update(Update::Recorded(event)) => {
                    if let SessionEventKind::AgentMessage { content } = event.kind {
                        text = Message::assistant(content).text();
                    }
                }
                TurnEvent::Update(_) => {}
                TurnEvent::Ended { stop, .. } => return Ok(Answer { text, stop }),
                TurnEvent::Unqueued => break,
            }
        }
        Err(SessionError::NotRunning)
    }

    fn accept(&mut self, item: SubscriptionItem) {
        let (event, updates) = match item {
            SubscriptionItem::Event { event, updates } => (event, updates),
            SubscriptionItem::Preview(preview) => {
                if let TurnPhase::Running(_) = self.phase {
                    self.ready.push_back(TurnEvent::Update(Update::Preview(preview)));
                }
                return;
            }
            SubscriptionItem::Progress(progress) => {
                if let TurnPhase::Running(_) = self.phase {
                    self.ready.push_back(TurnEvent::Update(Update::ToolProgress(progress)));
                }
                return;
            }
            SubscriptionItem::Lagged => {
                return self.ready.push_back(TurnEvent::Update(Update::Lagged));
            }
        };
        if let (TurnPhase::Waiting(id), EventKind::TurnStarted { turn, queued, .. }) =
            (self.phase, &event.kind)
            && *queued == Some(id)
        {
            self.phase = TurnPhase::Running(*turn);
        }
        if let TurnPhase::Running(_) = self.phase {
            self.ready.extend(updates.into_iter().map(Update::Recorded).map(TurnEvent::Update));
        }
        match (&event.kind, self.phase) {
            (EventKind::TurnFinished { turn, stop, .. }, TurnPhase::Running(running)) if *turn == running => {
                self.phase = TurnPhase::Over;
                let (turn, stop) = (*turn, self.subscription.redacted_stop(stop));
                self.ready.push_back(TurnEvent::Ended { turn, stop });
            }
            (EventKind::Unqueued { id }, TurnPhase::Waiting(waiting)) if *id == waiting => {
                self.phase = TurnPhase::Over;
                self.ready.push_back(TurnEvent::Unqueued);
            }
            _ => {}
        }
    }
}
