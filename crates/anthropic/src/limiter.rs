//! One limiter per key, shared by all sessions that use it: what one of them learns of a limit, all heed.
//!
//! While the key is not limited, calls pass without waiting. After a limit (a 429, a 529, or either's error in the midst of
//! a stream) the gate closes until the service's `retry-after` (with jitter, and for ten minutes at most) is over; then exactly one call, the one that
//! has waited longest, goes out as a probe. Another limit closes the gate again; anything else opens it slowly, one call
//! and then twice as many per answer, so that a thousand waiting sessions do not come back as a herd. Calls that are not
//! answered for [`PROBE_HOLD`] do not hold up the others: one more goes out beside them.
//!
//! It owns the queue of waiting calls, in memory only; a crash forgets it, and the service reminds us. A waiting
//! or admitted call that is dropped gives its place back: there is no state that only its own progress can leave. Nor
//! does a call that nobody polls any more keep the others: the first in the queue watches the time, and the others,
//! [`WATCH_LATER`], whether it did.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use conjure_base::{Clock, Deadline};
use futures_util::future::BoxFuture;

/// How much longer than asked the gate stays closed, at most: this part of the wait.
const JITTER: f64 = 0.1;

/// How long the gate is closed at most, but for the jitter, however long the service asks for: then a probe shows whether
/// it still means it. A key that was told to wait for weeks by mistake would else be lost to this process.
pub(crate) const LONGEST_CLOSED: Duration = Duration::from_secs(600);

/// For how long calls without an answer keep those behind them from trying. The head of a streamed answer takes seconds.
const PROBE_HOLD: Duration = Duration::from_secs(10);

/// How much later than the first in the queue the others look at the time.
const WATCH_LATER: Duration = Duration::from_secs(60);

/// Why a call was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key is rate limited beyond the call's deadline")]
pub(crate) struct NotAdmitted {
    /// How long until the gate may open; zero when it may be open, and others are before this call.
    pub(crate) retry_after: Duration,
}

/// A call's place in the order of all calls of this key. It keeps it over its retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The limiter of one key.
#[derive(Debug)]
pub(crate) struct Limiter {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    next_ticket: u64,
    waiting: BTreeMap<Ticket, Waiting>,
    /// Counts the limits: an answer to a call that was sent before the last of them says nothing about now.
    epoch: u64,
    /// Calls of this epoch that were admitted and have no answer yet.
    in_flight: u32,
}

#[derive(Debug, Clone, Copy)]
enum Gate {
    Open,
    /// Nobody passes before this.
    Closed {
        until: Deadline,
    },
    /// As many may be under way at once; one more when none of them has been answered at the end of patience.
    Opening {
        window: u32,
        patience: Deadline,
    },
}

#[derive(Debug)]
struct Waiting {
    waker: Option<Waker>,
    /// The epoch it was admitted in, while it has not noticed yet.
    admitted: Option<u64>,
}

impl Limiter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let state =
            State { gate: Gate::Open, next_ticket: 0, waiting: BTreeMap::new(), epoch: 0, in_flight: 0 };
        Self { clock, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next place in the order of calls.
    pub(crate) fn ticket(&self) -> Ticket {
        let mut state = self.lock();
        state.next_ticket += 1;
        Ticket(state.next_ticket)
    }

    /// Leave to send one call at once, where the key is not limited and nobody waits.
    pub(crate) fn try_admit(self: &Arc<Self>) -> Option<Permit> {
        let mut state = self.lock();
        let is_free = matches!(state.gate, Gate::Open) && state.waiting.is_empty();
        is_free.then(|| self.permit(state.pass()))
    }

    /// Waits until the call may be sent, at most until `deadline`; at once an error when the gate is closed for
    /// longer than that.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<Permit, NotAdmitted> {
        {
            let mut state = self.lock();
            if matches!(state.gate, Gate::Open) && state.waiting.is_empty() {
                return Ok(self.permit(state.pass()));
            }
            if let Gate::Closed { until } = state.gate
                && until.earlier(deadline) != until
            {
                return Err(NotAdmitted { retry_after: self.clock.remaining(until) });
            }
            state.waiting.insert(ticket, Waiting { waker: None, admitted: None });
            state.admit_waiting();
        }
        let _place = Place { limiter: self, ticket };
        let mut expired = self.clock.sleep_until(deadline);
        // When to look at the time; who is first looks when it is over.
        let mut watch: Option<(Watch, BoxFuture<'static, ()>)> = None;
        poll_fn(|context| {
            loop {
                let due = match self.look(ticket, context) {
                    Look::Admitted(epoch) => return Poll::Ready(Ok(self.permit(epoch))),
                    Look::Waiting => break,
                    Look::Watching(due) => due,
                };
                if watch.as_ref().is_none_or(|(armed, _)| *armed != due) {
                    let at = if due.is_first { due.until } else { self.later(due.until) };
                    watch = Some((due, self.clock.sleep_until(at)));
                }
                let timer = watch.as_mut().map(|(_, timer)| timer.as_mut().poll(context));
                if timer != Some(Poll::Ready(())) {
                    break;
                }
                watch = None;
                self.time_is_over(due.until);
            }
            expired.as_mut().poll(context).map(|()| Err(NotAdmitted { retry_after: self.closed_for() }))
        })
        .await
    }

    fn look(&self, ticket: Ticket, context: &Context<'_>) -> Look {
        let mut state = self.lock();
        // Those who were admitted and have not noticed yet no longer wait.
        let first = state.waiting.iter().find(|(_, waiting)| waiting.admitted.is_none());
        let is_first = first.is_some_and(|(first, _)| *first == ticket);
        let gate = state.gate;
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return Look::Waiting };
        if let Some(epoch) = waiting.admitted {
            state.waiting.remove(&ticket);
            return Look::Admitted(epoch);
        }
        waiting.waker = Some(context.waker().clone());
        match gate {
            Gate::Closed { until } | Gate::Opening { patience: until, .. } => {
                Look::Watching(Watch { until, is_first })
            }
            Gate::Open => Look::Waiting,
        }
    }

    /// The closed time, or the patience, is over: one may try, unless another time counts by now.
    fn time_is_over(&self, until: Deadline) {
        let mut state = self.lock();
        let window = match state.gate {
            Gate::Closed { until: now } if now == until => 1,
            Gate::Opening { window, patience } if patience == until => window.saturating_add(1),
            _ => return,
        };
        state.gate = Gate::Opening { window, patience: self.patience() };
        state.admit_waiting();
    }

    /// Closes the gate for `wait`, at most [`LONGEST_CLOSED`], plus up to a tenth of it by `random` (0 to 1).
    pub(crate) fn limited(&self, wait: Duration, random: f64) {
        self.close(&mut self.lock(), wait, random);
    }

    fn close(&self, state: &mut State, wait: Duration, random: f64) {
        let until = self.clock.deadline(wait.min(LONGEST_CLOSED).mul_f64(1.0 + JITTER * random));
        state.gate = match state.gate {
            Gate::Closed { until: before } if before.earlier(until) == until => {
                Gate::Closed { until: before }
            }
            _ => Gate::Closed { until },
        };
        state.epoch += 1;
        state.in_flight = 0;
        // Who was admitted and has not noticed goes back to waiting.
        for waiting in state.waiting.values_mut() {
            waiting.admitted = None;
        }
        state.admit_waiting();
    }

    fn patience(&self) -> Deadline {
        self.clock.deadline(PROBE_HOLD)
    }

    /// When to look whether the first in the queue did what was to be done at `until`.
    fn later(&self, until: Deadline) -> Deadline {
        self.clock.deadline(self.clock.remaining(until).saturating_add(WATCH_LATER))
    }

    fn closed_for(&self) -> Duration {
        match self.lock().gate {
            Gate::Closed { until } => self.clock.remaining(until),
            Gate::Open | Gate::Opening { .. } => Duration::ZERO,
        }
    }

    fn permit(self: &Arc<Self>, epoch: u64) -> Permit {
        Permit { limiter: Arc::clone(self), epoch, is_reported: false }
    }
}

enum Look {
    Admitted(u64),
    Watching(Watch),
    Waiting,
}

/// Until when nothing changes by itself, and who sees to it that then it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watch {
    until: Deadline,
    /// The others have another look later: the first one may be a call that nobody polls.
    is_first: bool,
}

impl State {
    /// One more call is under way; returns its epoch.
    fn pass(&mut self) -> u64 {
        self.in_flight = self.in_flight.saturating_add(1);
        self.epoch
    }

    /// Admits those who have waited longest, as many as the gate lets through, and wakes whoever must act.
    fn admit_waiting(&mut self) {
        let free = match self.gate {
            Gate::Open => u32::MAX,
            Gate::Opening { window, .. } => window.saturating_sub(self.in_flight),
            Gate::Closed { .. } => 0,
        };
        let epoch = self.epoch;
        let mut still = self.waiting.values_mut().filter(|waiting| waiting.admitted.is_none());
        for waiting in still.by_ref().take(free as usize) {
            waiting.admitted = Some(epoch);
            self.in_flight = self.in_flight.saturating_add(1);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
        // The first of those who still wait watches the time.
        if let Some(waker) = still.next().and_then(|first| first.waker.take()) {
            waker.wake();
        }
    }

    /// A call of this epoch is no longer under way.
    fn landed(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }
}

/// The place of a waiting call in the queue. Dropped, it gives the place, or the admission not used, back.
struct Place<'a> {
    limiter: &'a Arc<Limiter>,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        if let Some(waiting) = state.waiting.remove(&self.ticket) {
            if let Some(epoch) = waiting.admitted {
                state.landed(epoch);
            }
            state.admit_waiting();
        }
    }
}

/// Leave to send one call. Report how it was answered; dropped without a report, it counts as not sent.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<Limiter>,
    epoch: u64,
    is_reported: bool,
}

impl Permit {
    /// The service answered, with anything but a limit.
    pub(crate) fn answered(mut self) {
        self.is_reported = true;
        let mut state = self.limiter.lock();
        state.landed(self.epoch);
        if self.epoch == state.epoch
            && let Gate::Opening { window, .. } = state.gate
        {
            // Nobody waits any more: what comes now comes one by one anyway.
            let is_caught_up = state.waiting.is_empty() && state.in_flight == 0;
            state.gate = if is_caught_up {
                Gate::Open
            } else {
                Gate::Opening { window: window.saturating_add(1), patience: self.limiter.patience() }
            };
        }
        state.admit_waiting();
    }

    /// The service answered with a limit: nobody is sent for `wait`, plus up to a tenth of it by `random` (0 to 1).
    pub(crate) fn limited(mut self, wait: Duration, random: f64) {
        self.is_reported = true;
        self.limiter.limited(wait, random);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_reported {
            let mut state = self.limiter.lock();
            state.landed(self.epoch);
            state.admit_waiting();
        }
    }
}

#[cfg(test)]
mod tests;
