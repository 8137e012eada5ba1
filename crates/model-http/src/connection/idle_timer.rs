//! [`IdleTimer`]: the timer of a response body, kept from chunk to chunk.
//!
//! Most chunks come long before it fires. So it is not set anew for each: it fires at its first time, and is then set to the time that
//! counts by now.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use conjure_base::{Clock, Deadline};

/// A timer whose time only moves to later.
#[derive(Default)]
pub(crate) struct IdleTimer {
    armed: Option<(Deadline, Sleep)>,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

impl IdleTimer {
    /// Resolves once `until` has passed. `until` is never before that of an earlier call.
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
