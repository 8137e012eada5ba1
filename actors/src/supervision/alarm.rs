//! Something that is done at a time, unless it is dropped before.

use conjure_base::{Clock, Deadline, SystemClock};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// One task that sleeps until its time.
#[derive(Debug)]
#[must_use = "an alarm that is dropped does not ring"]
pub(crate) struct Alarm {
    at: Deadline,
    _sleeper: AbortOnDropHandle<()>,
}

impl Alarm {
    /// Calls `ring`, which only sends a message, at `at`.
    pub(crate) fn set(at: Deadline, ring: impl FnOnce() + Send + 'static) -> Self {
        let sleeper = TaskTracker::new().spawn(async move {
            SystemClock.sleep_until(at).await;
            ring();
        });
        Self { at, _sleeper: AbortOnDropHandle::new(sleeper) }
    }

    /// When it rings.
    pub(crate) const fn at(&self) -> Deadline {
        self.at
    }
}
