//! A turn that was sent, followed to its end over a subscription of its own.

use std::collections::VecDeque;

use conjure_base::TurnId;
use conjure_conversation::{EventKind, Message, QueueId, SessionEventKind, TurnStop};

use super::error::SessionError;
use super::subscription::{Subscription, SubscriptionItem, Update};

/// What a turn tells.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are updates")]
pub enum TurnEvent {
    /// As of a subscription; from the turn's start on.
    Update(Update),
    /// It is over. The last of its events.
    Ended {
        /// Which turn it was.
        turn: TurnId,
        /// Why it ended.
        stop: TurnStop,
    },
    /// It was taken back before it began. The last of its events.
    Unqueued,
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The text of the model's last message. Empty if the turn ended before there was one.
    pub text: String,
    /// Why the turn ended.
    pub stop: TurnStop,
}

/// A turn that was sent, followed to its end. Dropping it does not end the turn.
#[derive(Debug)]
pub struct TurnHandle {
    subscription: Subscription,
    accepted: Accepted,
    phase: TurnPhase,
    ready: VecDeque<TurnEvent>,
}

/// How a message was taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Its turn runs.
    Started {
        /// Which.
        turn: TurnId,
        /// Where its start is recorded.
        seq: u64,
    },
    /// It waits for its turn.
    Queued {
        /// Its place in the queue.
        id: QueueId,
        /// Where that is recorded.
        seq: u64,
    },
}

impl Accepted {
    /// Where it is recorded.
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

    /// How the message was taken up.
    #[must_use]
    pub const fn accepted(&self) -> Accepted {
        self.accepted
    }

    /// What it is followed by. If nothing was read yet, it begins with the event that records the message.
    #[must_use]
    pub fn into_subscription(self) -> Subscription {
        self.subscription
    }

    /// The next event of the turn; none after its end. A future that is dropped loses nothing.
    ///
    /// # Errors
    /// When the journal cannot be read where it must be, or the session was given up; the turn may then go on later.
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

    /// Why the turn ended, once it has.
    ///
    /// # Errors
    /// As [`TurnHandle::next`]; [`SessionError::NotRunning`] when it was taken back.
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

    /// Follows the turn to its end and returns what the model said last.
    ///
    /// # Errors
    /// As [`TurnHandle::end`].
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
