//! A point in monotonic time after which nobody waits any more.

use tokio::time::Instant;

/// The moment at which a wait ends. Messages carry deadlines, not durations: a duration that is handed on
/// starts anew at each hop, a deadline does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline: the wait ends only by its event or by cancellation.
    pub const NEVER: Self = Self(None);

    /// A deadline at `instant`. Use [`crate::Clock::deadline`] to get one relative to now.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The instant, or `None` for [`Deadline::NEVER`].
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// The earlier of the two.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, SystemClock};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_deadlines_wins_and_never_is_later_than_all() {
        let (soon, late) =
            (SystemClock.deadline(Duration::from_secs(1)), SystemClock.deadline(Duration::from_secs(9)));
        assert_eq!(soon.earlier(late), soon);
        assert_eq!(late.earlier(soon), soon);
        assert_eq!(Deadline::NEVER.earlier(soon), soon);
        assert_eq!(soon.earlier(Deadline::NEVER), soon);
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
}
