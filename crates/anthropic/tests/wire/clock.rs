//! A clock that a test advances, and that shows which sleeps are pending.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, Timestamp};

/// Sunday, 6 November 1994, 08:49:30 GMT.
pub(crate) const START_MILLIS: u64 = 784_111_770_000;

/// How long the client awaits the end of an error's body, and of a stream after its last event; and how long a call
/// that is not answered holds up those that wait for the limiter.
const OTHER_WAITS: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_millis(20), Duration::from_secs(10)];

#[derive(Clone)]
pub(crate) struct ManualClock(Arc<Shared>);

struct Shared {
    origin: tokio::time::Instant,
    state: Mutex<State>,
    changed: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    elapsed: Duration,
    next: u64,
    /// The pending sleeps, by their wake-up time after the origin.
    sleepers: BTreeMap<u64, (Duration, Waker)>,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let origin = SystemClock.deadline(Duration::ZERO).instant().unwrap();
        Self(Arc::new(Shared { origin, state: Mutex::default(), changed: tokio::sync::Notify::new() }))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.state.lock().unwrap().elapsed
    }

    pub(crate) fn advance(&self, by: Duration) {
        let mut state = self.0.state.lock().unwrap();
        state.elapsed += by;
        for (_, waker) in state.sleepers.values() {
            waker.wake_by_ref();
        }
    }

    /// Waits until somebody sleeps for less than half a minute, as before a retry, moves the time to the end of the shortest such sleep
    /// and returns how long it was. The waits for what comes by itself, such as the end of a body, are not meant.
    pub(crate) async fn skip_retry_wait(&self) -> Duration {
        let is_meant = |remaining: &Duration| {
            !remaining.is_zero() && *remaining < Duration::from_secs(30) && !OTHER_WAITS.contains(remaining)
        };
        loop {
            let changed = self.0.changed.notified();
            let shortest = {
                let state = self.0.state.lock().unwrap();
                let remaining = state.sleepers.values().map(|(until, _)| until.saturating_sub(state.elapsed));
                remaining.filter(is_meant).min()
            };
            if let Some(remaining) = shortest {
                self.advance(remaining);
                return remaining;
            }
            changed.await;
        }
    }

    /// Waits until a sleep of exactly `remaining` is pending.
    pub(crate) async fn sleeper_for(&self, remaining: Duration) {
        loop {
            let changed = self.0.changed.notified();
            {
                let state = self.0.state.lock().unwrap();
                if state.sleepers.values().any(|(until, _)| until.saturating_sub(state.elapsed) == remaining)
                {
                    return;
                }
            }
            changed.await;
        }
    }
}

struct Sleeper {
    clock: Arc<Shared>,
    id: u64,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.clock.state.lock().unwrap().sleepers.remove(&self.id);
    }
}

impl Clock for ManualClock {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(START_MILLIS + u64::try_from(self.elapsed().as_millis()).unwrap())
    }

    fn deadline(&self, after: Duration) -> Deadline {
        Deadline::at(self.0.origin + self.elapsed() + after)
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        deadline.instant().map_or(Duration::MAX, |at| (at - self.0.origin).saturating_sub(self.elapsed()))
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let Some(until) = deadline.instant().map(|at| at - self.0.origin) else {
            return Box::pin(std::future::pending());
        };
        let clock = Arc::clone(&self.0);
        let id = {
            let mut state = clock.state.lock().unwrap();
            state.next += 1;
            state.next
        };
        let sleeper = Sleeper { clock, id };
        Box::pin(poll_fn(move |context| {
            let mut state = sleeper.clock.state.lock().unwrap();
            if state.elapsed >= until {
                return Poll::Ready(());
            }
            state.sleepers.insert(sleeper.id, (until, context.waker().clone()));
            drop(state);
            sleeper.clock.changed.notify_waiters();
            Poll::Pending
        }))
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({:?})", self.elapsed())
    }
}
