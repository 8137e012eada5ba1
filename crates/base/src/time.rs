//! Time: the clock, deadlines, and waiting with a deadline.
//!
//! This is the one place that reads the time. Everything else gets the time as a value.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::Timestamp;

/// A source of time. Programs use [`SystemClock`]; tests use a clock that they move by hand.
///
/// The two kinds of reading differ. [`Clock::timestamp`] is for people and may jump. [`Clock::deadline`] and
/// [`Clock::sleep_until`] are monotonic and follow Tokio's time, which tests can pause.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock, in milliseconds since the Unix epoch.
    fn timestamp(&self) -> Timestamp;

    /// The deadline that lies `after` from now, on the monotonic clock. The default is Tokio's, here and below.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn deadline(&self, after: Duration) -> Deadline {
        // If the clock cannot add the duration, there is no deadline.
        Instant::now().checked_add(after).map_or(Deadline::NEVER, Deadline::at)
    }

    /// The time until `deadline`; zero when it has passed.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn remaining(&self, deadline: Deadline) -> Duration {
        match deadline.instant() {
            Some(instant) => instant.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        }
    }

    /// Resolves once `deadline` has passed. [`Deadline::NEVER`] never resolves.
    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        match deadline.instant() {
            Some(instant) => Box::pin(tokio::time::sleep_until(instant)),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The machine's clocks, through Tokio. Works only inside a Tokio runtime whose time driver is enabled.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_system_time(std::time::SystemTime::now())
    }
}

/// A monotonic point in time at which a wait times out.
///
/// Messages carry deadlines, not durations: a duration would start again at each hop, a deadline does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline: the wait ends only by its event or by cancellation.
    pub const NEVER: Self = Self(None);

    /// A deadline at `instant`. Use [`Clock::deadline`] for one relative to now.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The instant; `None` for [`Deadline::NEVER`].
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// The earlier of the two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }
}

/// The deadline passed before the future was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the deadline has passed")]
pub struct TimedOut;

/// Waits for `future`, at most until `deadline`.
///
/// The future is polled first, so a future that is ready wins even when the deadline has passed. On a timeout the
/// future is dropped. Dropping the returned future drops `future`, too.
///
/// # Errors
/// [`TimedOut`] when `deadline` passes first.
///
/// ```
/// use std::time::Duration;
/// use conjure_base::{Clock as _, SystemClock, TimedOut, with_deadline};
///
/// # async fn example() {
/// let deadline = SystemClock.deadline(Duration::from_millis(10));
/// assert_eq!(with_deadline(&SystemClock, deadline, std::future::pending::<()>()).await, Err(TimedOut));
/// # }
/// ```
pub async fn with_deadline<F: Future>(
    clock: &dyn Clock,
    deadline: Deadline,
    future: F,
) -> Result<F::Output, TimedOut> {
    let mut future = pin!(future);
    let mut timer = clock.sleep_until(deadline);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => timer.as_mut().poll(context).map(|()| Err(TimedOut)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_minimum_of_two_deadlines_is_the_earlier_and_never_is_the_latest() {
        let (soon, late) =
            (SystemClock.deadline(Duration::from_secs(1)), SystemClock.deadline(Duration::from_secs(9)));
        assert_eq!(soon.min(late), soon);
        assert_eq!(late.min(soon), soon);
        assert_eq!(Deadline::NEVER.min(soon), soon);
        assert_eq!(soon.min(Deadline::NEVER), soon);
        assert_eq!(SystemClock.remaining(Deadline::NEVER), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_duration_beyond_the_clock_is_no_deadline() {
        assert_eq!(SystemClock.deadline(Duration::MAX), Deadline::NEVER);
    }

    #[tokio::test(start_paused = true)]
    async fn sleeping_ends_when_the_deadline_has_passed() {
        let deadline = SystemClock.deadline(Duration::from_secs(3600));
        SystemClock.sleep_until(deadline).await;
        assert_eq!(SystemClock.remaining(deadline), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_is_not_ready_times_out_at_its_deadline() {
        let deadline = SystemClock.deadline(Duration::from_secs(3600));
        let slow = SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3601)));
        assert_eq!(with_deadline(&SystemClock, deadline, slow).await, Err(TimedOut));
        assert_eq!(SystemClock.remaining(deadline), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ready_future_wins_over_a_deadline_that_has_passed() {
        let passed = SystemClock.deadline(Duration::ZERO);
        SystemClock.sleep_until(passed).await;
        assert_eq!(with_deadline(&SystemClock, passed, async { 7 }).await, Ok(7));
        assert_eq!(with_deadline(&SystemClock, Deadline::NEVER, async { 7 }).await, Ok(7));
    }
}
