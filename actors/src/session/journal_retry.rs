//! When a session tries again what the journal failed: a little later, and then less and less often, as an answer of the model
//! that could not be recorded was paid for.
//!
//! One try is due at a time. Those who say something meanwhile are served at once; that their messages fail too neither brings
//! further tries about nor puts this one off. State: how often it failed, and the task that waits for the moment. Both end with
//! the actor, whose next incarnation begins with what is recorded.

use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use super::actor_message::{ActorMessage, send_to_self};
use crate::supervision::{Context, Job};

/// When for the first time; twice as long after each further failure, up to the other.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The tries of one session.
#[derive(Default)]
pub(crate) struct JournalRetry {
    /// How many tries in a row were due.
    tries: u32,
    /// The one that is due, dropped when it begins or nobody needs it any more.
    due: Option<Job>,
}

impl JournalRetry {
    /// The journal failed: a try is due later, where none is yet.
    pub(crate) fn scheduler(&mut self, context: &Context<ActorMessage>) {
        if self.due.is_some() {
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.tries.min(16)).min(LONGEST_PAUSE);
        self.tries = self.tries.saturating_add(1);
        let (address, stopping) = (context.address().clone(), context.stopping().clone());
        self.due = Some(context.spawn(async move {
            SystemClock.sleep_until(SystemClock.deadline(pause)).await;
            send_to_self(&address, &stopping, ActorMessage::Retry).await;
        }));
    }

    /// The one that was due begins.
    pub(crate) fn start(&mut self) {
        self.due = None;
    }

    /// The journal does its work again.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}
