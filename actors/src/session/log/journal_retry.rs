//! Schedules the next attempt after a failure of the journal: after one second, then after longer and longer pauses. A
//! model response that could not be recorded was paid for, so another attempt is worthwhile.
//!
//! One attempt is scheduled at a time. New messages are handled at once. Their failures neither add attempts nor delay
//! the scheduled one. State: the number of attempts, and the timer task. Both end with the actor; its next incarnation
//! starts from the recorded events.

use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use crate::session::lifecycle::actor_message::{ActorMessage, send_to_self};
use crate::supervision::{Context, Job};

/// The first pause. It doubles after each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The attempts of one session.
#[derive(Default)]
pub(crate) struct JournalRetry {
    /// How many attempts in a row were scheduled.
    tries: u32,
    /// The scheduled attempt. Dropped when it starts or when it is not needed any more.
    scheduled: Option<Job>,
}

impl JournalRetry {
    /// Schedules an attempt after a failure of the journal, unless one is already scheduled.
    pub(crate) fn schedule(&mut self, context: &Context<ActorMessage>) {
        if self.scheduled.is_some() {
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.tries.min(16)).min(LONGEST_PAUSE);
        self.tries = self.tries.saturating_add(1);
        let (address, stopping) = (context.address().clone(), context.stopping().clone());
        self.scheduled = Some(context.spawn(async move {
            SystemClock.sleep_until(SystemClock.deadline(pause)).await;
            send_to_self(&address, &stopping, ActorMessage::Retry).await;
        }));
    }

    /// Forgets the scheduled attempt, because it starts now.
    pub(crate) fn start(&mut self) {
        self.scheduled = None;
    }

    /// Cancels the scheduled attempt and resets the pause, because the journal works again.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}
