//! Something that is done at a time, unless it is dropped before.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// One task that sleeps until its time.
#[derive(Debug)]
#[must_use = "an alarm that is dropped does not ring"]
pub(crate) struct OneShotTimer {
    at: Deadline,
    _sleeper: AbortOnDropHandle<()>,
}

impl OneShotTimer {
    /// Calls `notify`, which only sends a message, at `at`.
    pub(crate) fn set(at: Deadline, notify: impl FnOnce() + Send + 'static) -> Self {
        let sleeper = TaskTracker::new().spawn(async move {
            SystemClock.sleep_until(at).await;
            notify();
        });
        Self { at, _sleeper: AbortOnDropHandle::new(sleeper) }
    }

    /// When it rings.
    pub(crate) const fn at(&self) -> Deadline {
        self.at
    }
}

/// Since when a worker is idle, and the one alarm that looks after it: set again when it rings too early, so that a
/// message costs no timer.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    after: Duration,
    state: Mutex<IdleState>,
}

#[derive(Debug)]
struct IdleState {
    passive_at: Deadline,
    timer: Option<OneShotTimer>,
}

impl IdleTimer {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, state: Mutex::new(IdleState { passive_at: Deadline::NEVER, timer: None }) }
    }

    /// It was busy until now. `notify` sends the message that makes the worker look.
    pub(crate) fn touch(&self, notify: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passive_at = SystemClock.deadline(self.after);
        if state.timer.is_none() {
            state.timer = Some(OneShotTimer::set(state.passive_at, notify));
        }
    }

    /// It was busy until now, beside its messages; the alarm finds that out.
    pub(crate) fn postpone(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passive_at = SystemClock.deadline(self.after);
    }

    /// The alarm rang: whether it was idle all the time. Where it was not, the alarm is set again.
    pub(crate) fn has_elapsed(&self, notify: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_elapsed = SystemClock.remaining(state.passive_at).is_zero();
        state.timer = (!has_elapsed).then(|| OneShotTimer::set(state.passive_at, notify));
        has_elapsed
    }
}
