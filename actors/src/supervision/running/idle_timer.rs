//! [`IdleTimer`]: measures when a worker has been idle for long enough. `WorkerActor::passivate_if_idle` then stops it.

use std::sync::Mutex;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, lock};

use super::timer::OneShotTimer;

/// Measures how long a worker is idle, with one timer. A busy worker only moves the time; a timer that expires too
/// early is set again. So a message does not cost a new timer.
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

    /// Records that the worker was busy until now. `notify` sends the message on which the worker checks whether it was
    /// idle.
    pub(crate) fn touch(&self, notify: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        state.passive_at = SystemClock.deadline(self.after);
        if state.timer.is_none() {
            state.timer = Some(OneShotTimer::set(state.passive_at, notify));
        }
    }

    /// Records that the worker's tracked work was busy until now. The running timer takes this into account when it
    /// expires.
    pub(crate) fn postpone(&self) {
        let mut state = lock(&self.state);
        state.passive_at = SystemClock.deadline(self.after);
    }

    /// Whether the worker was idle for the whole time. Called when the timer expires. If the worker was not idle, the
    /// timer is set again.
    pub(crate) fn has_elapsed(&self, notify: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.state);
        let has_elapsed = SystemClock.remaining(state.passive_at).is_zero();
        state.timer = (!has_elapsed).then(|| OneShotTimer::set(state.passive_at, notify));
        has_elapsed
    }
}
