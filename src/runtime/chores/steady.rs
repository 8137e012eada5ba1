//! Whether the clock on the wall can be believed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, Timestamp};

/// How far the clock on the wall may be from the one that only counts, between two looks.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Longer than any process runs.
const AGES: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// Says what time it is once the clock on the wall and the one that only counts went on by as much since it was asked last: a
/// clock that was set, or that was wrong until it was, says nothing about how old anything is.
#[derive(Debug, Default)]
pub(super) struct Steady {
    last: Mutex<Option<Look>>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    wall: Timestamp,
    /// By the clock that only counts, from any beginning.
    counted: Duration,
}

impl Steady {
    /// The time; `None` for the first time, and when the clock was set since the last one.
    pub(super) fn now(&self, since: Deadline) -> Option<Timestamp> {
        let counted = AGES.saturating_sub(SystemClock.remaining(since));
        self.at(Look { wall: SystemClock.timestamp(), counted })
    }

    /// From when [`Steady::now`] counts.
    pub(super) fn beginning() -> Deadline {
        SystemClock.deadline(AGES)
    }

    fn at(&self, look: Look) -> Option<Timestamp> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(look)?;
        let counted = look.counted.saturating_sub(before.counted);
        let is_back = look.wall < before.wall;
        let is_steady = !is_back && look.wall.since(before.wall).abs_diff(counted) <= TOLERANCE;
        is_steady.then_some(look.wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_believed_only_when_it_has_gone_on_since() {
        let steady = Steady::default();
        let look = |wall: u64, counted: u64| {
            let wall = Timestamp::from_millis(wall * 1_000);
            steady.at(Look { wall, counted: Duration::from_secs(counted) })
        };
        let seen = |wall: u64| Some(Timestamp::from_millis(wall * 1_000));
        assert_eq!(look(1_000_000, 0), None, "nothing is known of it yet");
        assert_eq!(look(1_003_600, 3_600), seen(1_003_600));
        // Forward by years, on, and back.
        assert_eq!(look(99_000_000, 7_200), None);
        assert_eq!(look(99_003_600, 10_800), seen(99_003_600));
        assert_eq!(look(1_014_400, 14_400), None);
        assert_eq!(look(1_018_030, 18_000), seen(1_018_030));
        // A machine that slept: one clock went on, the other did not.
        assert_eq!(look(1_118_030, 18_010), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_told_from_the_second_time_on() {
        let (steady, since) = (Steady::default(), Steady::beginning());
        assert_eq!(steady.now(since), None);
        assert!(steady.now(since).is_some());
        // This clock only counts: the one on the wall stays where it is.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3_600))).await;
        assert_eq!(steady.now(since), None);
    }
}
