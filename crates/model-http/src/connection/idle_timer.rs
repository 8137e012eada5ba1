//! [`IdleTimer`]: the idle timer of a response body, which is reused for all chunks.
//!
//! Most chunks arrive long before the timer fires. So the timer is not reset for each chunk. When it fires, it is set to the newest
//! deadline, if that is later.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use conjure_base::{Clock, Deadline};

/// A timer whose deadline only moves later.
#[derive(Default)]
pub(crate) struct IdleTimer {
    armed: Option<(Deadline, Sleep)>,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

impl IdleTimer {
    /// Resolves once `until` has passed. `until` must not be earlier than in a previous call.
    pub(crate) fn poll_until(
        &mut self,
        clock: &dyn Clock,
        until: Deadline,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let (armed, sleep) = self.armed.get_or_insert_with(|| (until, clock.sleep_until(until)));
            ready!(sleep.as_mut().poll(context));
            if *armed == until {
                return Poll::Ready(());
            }
            self.armed = None;
        }
    }
}
