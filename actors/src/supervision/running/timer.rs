//! A timer for one point in time, which is cancelled by dropping it.

use conjure_base::{Clock, Deadline, SystemClock};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// A task that runs a callback at a point in time.
#[derive(Debug)]
#[must_use = "dropping the timer cancels it"]
pub(crate) struct OneShotTimer {
    at: Deadline,
    _sleeper: AbortOnDropHandle<()>,
}

impl OneShotTimer {
    /// Calls `notify` at `at`. `notify` must only send a message.
    pub(crate) fn set(at: Deadline, notify: impl FnOnce() + Send + 'static) -> Self {
        let sleeper = TaskTracker::new().spawn(async move {
            SystemClock.sleep_until(at).await;
            notify();
        });
        Self { at, _sleeper: AbortOnDropHandle::new(sleeper) }
    }

    /// The time of the timer.
    pub(crate) const fn at(&self) -> Deadline {
        self.at
    }
}
