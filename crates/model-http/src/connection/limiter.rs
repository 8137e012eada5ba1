//! [`Limiter`]: the rate limiter of one API key, shared by all sessions that use the key.
//!
//! While the key is not limited, calls pass without waiting. A limit is status 429 or 529, or such an error in a stream.
//!
//! - A limit closes the gate for the service's `retry-after`, at most ten minutes, plus jitter.
//! - Then exactly one call is sent as a probe: the one that has waited longest.
//! - Another limit closes the gate again.
//! - Any other response opens the gate slowly: the number of concurrent calls doubles, so that waiting sessions do not all send at once.
//! - If a probe has no response within [`PROBE_HOLD`], one more call is sent.
//!
//! The queue is in memory. Dropping a waiting or admitted call removes it from the queue. A call that is no longer polled does not block
//! the others: the first call in the queue watches the time, and the others check a minute later ([`FALLBACK_DELAY`]) whether it did.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use conjure_base::{Clock, Deadline, lock};
use futures_util::future::BoxFuture;

/// The largest jitter, as a fraction of the wait.
const JITTER: f64 = 0.1;

/// The longest time that the gate stays closed, without jitter. Then a probe is sent, so a wrong `retry-after` of weeks does not block the
/// key for this process.
pub const MAX_CLOSED: Duration = Duration::from_secs(600);

/// How long a probe without a response blocks the calls behind it. The head of a streamed response arrives within seconds.
const PROBE_HOLD: Duration = Duration::from_secs(10);

/// How much later than the first in the queue the others check the time.
const FALLBACK_DELAY: Duration = Duration::from_secs(60);

/// Why a call was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key is rate limited beyond the call's deadline")]
pub struct NotAdmitted {
    /// The time until the gate may open. Zero if it may be open already, but other calls are before this one.
    pub retry_after: Duration,
}

/// A call's position in the order of all calls of the key. Retries keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueTicket(u64);

/// The limiter of one key.
#[derive(Debug)]
pub struct Limiter {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    next_ticket: u64,
    waiting: BTreeMap<QueueTicket, Waiting>,
    /// The number of limits so far. A response to a call from an earlier epoch says nothing about the current limit.
    epoch: u64,
    /// The number of admitted calls of this epoch that have no response yet.
    in_flight: u32,
}

#[derive(Debug, Clone, Copy)]
enum Gate {
    Open,
    /// No call passes before `until`.
    Closed {
        until: Deadline,
    },
    /// At most `window` concurrent calls pass. If none has a response by `timeout`, one more passes.
    Opening {
        window: u32,
        timeout: Deadline,
    },
}

#[derive(Debug)]
struct Waiting {
    waker: Option<Waker>,
    /// The epoch in which the call was admitted, until the call notices it.
    admitted: Option<u64>,
}

impl Limiter {
    /// Creates a limiter whose gate is open.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state =
            State { gate: Gate::Open, next_ticket: 0, waiting: BTreeMap::new(), epoch: 0, in_flight: 0 };
        Self { clock, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state stays consistent, because no code panics in the middle of a change.
        lock(&self.state)
    }

    /// Returns the next position in the order of calls.
    #[must_use]
    pub fn ticket(&self) -> QueueTicket {
        let mut state = self.lock();
        state.next_ticket += 1;
        QueueTicket(state.next_ticket)
    }

    /// Admits a call at once, if the key is not limited and no other call waits.
    #[must_use]
    pub fn try_admit(self: &Arc<Self>) -> Option<Permit> {
        let mut state = self.lock();
        let is_free = matches!(state.gate, Gate::Open) && state.waiting.is_empty();
        is_free.then(|| self.permit(state.pass()))
    }

    /// Waits until the call may be sent, at most until `deadline`.
    ///
    /// # Errors
    /// [`NotAdmitted`]: at once if the gate stays closed beyond the deadline, else at the deadline.
    pub async fn admit(
        self: &Arc<Self>,
        ticket: QueueTicket,
        deadline: Deadline,
    ) -> Result<Permit, NotAdmitted> {
        {
            let mut state = self.lock();
            if matches!(state.gate, Gate::Open) && state.waiting.is_empty() {
                return Ok(self.permit(state.pass()));
            }
            if let Gate::Closed { until } = state.gate
                && until.min(deadline) != until
            {
                return Err(NotAdmitted { retry_after: self.clock.remaining(until) });
            }
            state.waiting.insert(ticket, Waiting { waker: None, admitted: None });
            state.admit_waiting();
        }
        let _guard = QueueGuard { limiter: self, ticket };
        let mut expired = self.clock.sleep_until(deadline);
        // When this call next checks the time.
        let mut watch: Option<(WaitUntil, BoxFuture<'static, ()>)> = None;
        poll_fn(|context| {
            loop {
                let due = match self.check_admission(ticket, context) {
                    AdmissionCheck::Admitted(epoch) => return Poll::Ready(Ok(self.permit(epoch))),
                    AdmissionCheck::Waiting => break,
                    AdmissionCheck::Watching(due) => due,
                };
                if watch.as_ref().is_none_or(|(armed, _)| *armed != due) {
                    let at = if due.is_first { due.until } else { self.fallback_deadline(due.until) };
                    watch = Some((due, self.clock.sleep_until(at)));
                }
                let timer = watch.as_mut().map(|(_, timer)| timer.as_mut().poll(context));
                if timer != Some(Poll::Ready(())) {
                    break;
                }
                watch = None;
                self.on_deadline(due.until);
            }
            expired.as_mut().poll(context).map(|()| Err(NotAdmitted { retry_after: self.closed_for() }))
        })
        .await
    }

    fn check_admission(&self, ticket: QueueTicket, context: &Context<'_>) -> AdmissionCheck {
        let mut state = self.lock();
        // Calls that are admitted and have not noticed yet are skipped.
        let first = state.waiting.iter().find(|(_, waiting)| waiting.admitted.is_none());
        let is_first = first.is_some_and(|(first, _)| *first == ticket);
        let gate = state.gate;
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return AdmissionCheck::Waiting };
        if let Some(epoch) = waiting.admitted {
            state.waiting.remove(&ticket);
            return AdmissionCheck::Admitted(epoch);
        }
        waiting.waker = Some(context.waker().clone());
        match gate {
            Gate::Closed { until } | Gate::Opening { timeout: until, .. } => {
                AdmissionCheck::Watching(WaitUntil { until, is_first })
            }
            Gate::Open => AdmissionCheck::Waiting,
        }
    }

    /// Lets one more call pass, because the deadline `until` of the closed or opening gate passed. It does nothing if the gate has another
    /// deadline by now.
    fn on_deadline(&self, until: Deadline) {
        let mut state = self.lock();
        let window = match state.gate {
            Gate::Closed { until: now } if now == until => 1,
            Gate::Opening { window, timeout } if timeout == until => window.saturating_add(1),
            _ => return,
        };
        state.gate = Gate::Opening { window, timeout: self.timeout() };
        state.admit_waiting();
    }

    /// Closes the gate for `wait`, at most [`MAX_CLOSED`], plus up to a tenth of it by `random` (0 to 1).
    pub fn report_limit(&self, wait: Duration, random: f64) {
        self.close(&mut self.lock(), wait, random);
    }

    fn close(&self, state: &mut State, wait: Duration, random: f64) {
        let until = self.clock.deadline(wait.min(MAX_CLOSED).mul_f64(1.0 + JITTER * random));
        state.gate = match state.gate {
            Gate::Closed { until: before } if before.min(until) == until => Gate::Closed { until: before },
            _ => Gate::Closed { until },
        };
        state.epoch += 1;
        state.in_flight = 0;
        // Calls that were admitted and have not noticed yet must wait again.
        for waiting in state.waiting.values_mut() {
            waiting.admitted = None;
        }
        state.admit_waiting();
    }

    fn timeout(&self) -> Deadline {
        self.clock.deadline(PROBE_HOLD)
    }

    /// When to check whether the first in the queue acted at `until`.
    fn fallback_deadline(&self, until: Deadline) -> Deadline {
        self.clock.deadline(self.clock.remaining(until).saturating_add(FALLBACK_DELAY))
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

enum AdmissionCheck {
    Admitted(u64),
    Watching(WaitUntil),
    Waiting,
}

/// The deadline until which nothing changes, and whether this call must act first then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WaitUntil {
    until: Deadline,
    /// Whether this call is the first. The others check later, in case the first is no longer polled.
    is_first: bool,
}

impl State {
    /// Counts a call as in flight and returns its epoch.
    fn pass(&mut self) -> u64 {
        self.in_flight = self.in_flight.saturating_add(1);
        self.epoch
    }

    /// Admits the calls that have waited longest, as many as the gate allows, and wakes them.
    fn admit_waiting(&mut self) {
        let free = match self.gate {
            Gate::Open => u32::MAX,
            Gate::Opening { window, .. } => window.saturating_sub(self.in_flight),
            Gate::Closed { .. } => 0,
        };
        let epoch = self.epoch;
        let mut waiting_calls = self.waiting.values_mut().filter(|waiting| waiting.admitted.is_none());
        for waiting in waiting_calls.by_ref().take(free as usize) {
            waiting.admitted = Some(epoch);
            self.in_flight = self.in_flight.saturating_add(1);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
        // The first waiting call watches the time.
        if let Some(waker) = waiting_calls.next().and_then(|first| first.waker.take()) {
            waker.wake();
        }
    }

    /// Counts a call of this epoch as finished.
    fn call_finished(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }
}

/// The queue entry of a waiting call. Dropping it removes the entry and releases an unused admission.
struct QueueGuard<'a> {
    limiter: &'a Arc<Limiter>,
    ticket: QueueTicket,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        if let Some(waiting) = state.waiting.remove(&self.ticket) {
            if let Some(epoch) = waiting.admitted {
                state.call_finished(epoch);
            }
            state.admit_waiting();
        }
    }
}

/// Permission to send one call. The holder must report the response. A permit that is dropped without a report counts as unsent.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<Limiter>,
    epoch: u64,
    is_reported: bool,
}

impl Permit {
    /// Reports a response that is not a limit.
    pub fn report_response(mut self) {
        self.is_reported = true;
        let mut state = self.limiter.lock();
        state.call_finished(self.epoch);
        if self.epoch == state.epoch
            && let Gate::Opening { window, .. } = state.gate
        {
            // No call waits any more, so the gate can open fully.
            let is_caught_up = state.waiting.is_empty() && state.in_flight == 0;
            state.gate = if is_caught_up {
                Gate::Open
            } else {
                Gate::Opening { window: window.saturating_add(1), timeout: self.limiter.timeout() }
            };
        }
        state.admit_waiting();
    }

    /// Reports a limit: no call is sent for `wait`, plus up to a tenth of it by `random` (0 to 1).
    pub fn report_limit(mut self, wait: Duration, random: f64) {
        self.is_reported = true;
        self.limiter.report_limit(wait, random);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_reported {
            let mut state = self.limiter.lock();
            state.call_finished(self.epoch);
            state.admit_waiting();
        }
    }
}

#[cfg(test)]
mod tests;
