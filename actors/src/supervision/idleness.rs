//! When a worker has been idle for long enough to be passivated.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};

use super::alarm::Alarm;

/// Since when a worker is idle, and the one alarm that looks after it: set again when it rings too early, so that a
/// message costs no timer.
#[derive(Debug)]
pub(crate) struct Idleness {
    after: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    passive_at: Deadline,
    alarm: Option<Alarm>,
}

impl Idleness {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, state: Mutex::new(State { passive_at: Deadline::NEVER, alarm: None }) }
    }

    /// It was busy until now. `ring` sends the message that makes the worker look.
    pub(crate) fn touch(&self, ring: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passive_at = SystemClock.deadline(self.after);
        if state.alarm.is_none() {
            state.alarm = Some(Alarm::set(state.passive_at, ring));
        }
    }

    /// It was busy until now, beside its messages; the alarm finds that out.
    pub(crate) fn postpone(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passive_at = SystemClock.deadline(self.after);
    }

    /// The alarm rang: whether it was idle all the time. Where it was not, the alarm is set again.
    pub(crate) fn is_over(&self, ring: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = SystemClock.remaining(state.passive_at).is_zero();
        state.alarm = (!is_over).then(|| Alarm::set(state.passive_at, ring));
        is_over
    }
}
