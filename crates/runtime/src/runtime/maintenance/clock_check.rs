//! Detects that the wall clock was set, so that no task relies on its time.

use std::sync::Mutex;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, Timestamp, lock};

/// How far the wall clock and the monotonic clock may differ between two readings.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Longer than any process runs.
const AGES: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// Returns the time once the wall clock and the monotonic clock advanced equally since the last reading. After the wall
/// clock was set, the age of anything is unknown.
#[derive(Debug)]
pub(super) struct ClockCheck {
    /// [`AGES`] after the start of the process. The monotonic clock is read as the time that remains until then.
    since: Deadline,
    last: Mutex<Option<ClockReading>>,
}

#[derive(Debug, Clone, Copy)]
struct ClockReading {
    wall: Timestamp,
    /// The monotonic clock, from an arbitrary start.
    counted: Duration,
}

impl ClockCheck {
    pub(super) fn new() -> Self {
        Self { since: SystemClock.deadline(AGES), last: Mutex::default() }
    }

    /// The time. `None` at the first reading, and if the clock was set since the last one.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let counted = AGES.saturating_sub(SystemClock.remaining(self.since));
        let now = self.at(ClockReading { wall: SystemClock.timestamp(), counted });
        if now.is_none() {
            tracing::debug!("the time is not known yet: the clock was just started or set");
        }
        now
    }

    fn at(&self, reading: ClockReading) -> Option<Timestamp> {
        let mut last = lock(&self.last);
        let before = last.replace(reading)?;
        let counted = reading.counted.saturating_sub(before.counted);
        let is_back = reading.wall < before.wall;
        let is_steady = !is_back && reading.wall.duration_since(before.wall).abs_diff(counted) <= TOLERANCE;
        is_steady.then_some(reading.wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_believed_only_when_it_has_gone_on_since() {
        let clock_check = ClockCheck::new();
        let look = |wall: u64, counted: u64| {
            let wall = Timestamp::from_millis(wall * 1_000);
            clock_check.at(ClockReading { wall, counted: Duration::from_secs(counted) })
        };
        let seen = |wall: u64| Some(Timestamp::from_millis(wall * 1_000));
        assert_eq!(look(1_000_000, 0), None, "nothing is known of it yet");
        assert_eq!(look(1_003_600, 3_600), seen(1_003_600));
        // The clock is set forward by years, runs on, and is set back.
        assert_eq!(look(99_000_000, 7_200), None);
        assert_eq!(look(99_003_600, 10_800), seen(99_003_600));
        assert_eq!(look(1_014_400, 14_400), None);
        assert_eq!(look(1_018_030, 18_000), seen(1_018_030));
        // A machine that slept: one clock advanced, and the other did not.
        assert_eq!(look(1_118_030, 18_010), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_reported_from_the_second_time_on() {
        let clock_check = ClockCheck::new();
        assert_eq!(clock_check.now(), None);
        assert!(clock_check.now().is_some());
        // Only the monotonic clock advances in this test.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3_600))).await;
        assert_eq!(clock_check.now(), None);
    }
}
