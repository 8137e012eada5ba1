//! Decides when to measure. It is pure: times are arguments.
//!
//! A twentieth of the passing time is saved up for measuring. A regular measurement waits until the savings cover
//! two measurements, so that an early one can follow at any time.

use std::time::Duration;

/// Measuring may use one part in this many of the passing time.
const SHARE: u32 = 20;

/// The minimum interval of measurements.
const SOONEST: Duration = Duration::from_millis(10);

/// The interval of regular measurements.
const REGULAR: Duration = Duration::from_millis(100);

/// The interval when nothing seems to change.
const QUIET: Duration = Duration::from_secs(2);

/// The maximum savings, unless two measurements cost more.
const SAVED_MAX: Duration = Duration::from_millis(250);

/// The time that is saved up for measuring.
#[derive(Debug)]
pub(super) struct MeasureSchedule {
    saved: Duration,
    /// What the last measurement cost more than was saved. It is paid back first.
    owed: Duration,
    /// Until when passing time was counted.
    counted: Duration,
    /// When the last measurement ended.
    last: Option<Duration>,
    /// The processor time of the last measurement.
    cost: Duration,
}

impl MeasureSchedule {
    pub(super) const fn new(now: Duration) -> Self {
        Self { saved: SAVED_MAX, owed: Duration::ZERO, counted: now, last: None, cost: Duration::ZERO }
    }

    /// Records a measurement that used this much processor time.
    pub(super) fn spend(&mut self, now: Duration, cost: Duration) {
        self.save(now);
        self.owed += cost.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(cost);
        self.cost = cost;
        self.last = Some(now);
    }

    fn save(&mut self, now: Duration) {
        let most = SAVED_MAX.max(self.cost * 2);
        let earned = now.saturating_sub(self.counted) / SHARE;
        self.saved = (self.saved + earned.saturating_sub(self.owed)).min(most);
        self.owed = self.owed.saturating_sub(earned);
        self.counted = now;
    }

    /// When the next regular measurement is due.
    pub(super) fn next_regular(&self) -> Duration {
        self.when(REGULAR, self.cost * 2)
    }

    /// When a measurement is due although nothing seems to change.
    pub(super) fn next_when_quiet(&self) -> Duration {
        self.when(QUIET, self.cost * 2)
    }

    /// The earliest time for a measurement that has a special reason.
    pub(super) fn earliest_early(&self) -> Duration {
        self.when(SOONEST, self.cost)
    }

    fn when(&self, pause: Duration, needed: Duration) -> Duration {
        let missing = (self.owed + needed).saturating_sub(self.saved);
        let rested = self.last.map_or(self.counted, |last| last + pause);
        rested.max(self.counted + missing * SHARE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_first_is_at_once_and_cheap_ones_are_regular() {
        let mut schedule = MeasureSchedule::new(ms(1000));
        assert_eq!((schedule.earliest_early(), schedule.next_regular()), (ms(1000), ms(1000)));
        schedule.spend(ms(1001), ms(1));
        assert_eq!((schedule.earliest_early(), schedule.next_regular()), (ms(1011), ms(1101)));
    }

    #[test]
    fn expensive_measurements_are_rare_and_leave_one_in_reserve() {
        let mut schedule = MeasureSchedule::new(ms(0));
        schedule.spend(ms(0), ms(250));
        // Nothing is saved. One measurement costs 250 ms, for which 5 s must pass.
        assert_eq!((schedule.earliest_early(), schedule.next_regular()), (ms(5_000), ms(10_000)));
        schedule.spend(ms(10_000), ms(250));
        assert_eq!((schedule.earliest_early(), schedule.next_regular()), (ms(10_010), ms(15_000)));
    }

    proptest! {
        #[test]
        fn measurements_use_a_twentieth_of_the_time(costs in prop::collection::vec((0_u64..400, any::<bool>()), 1..200)) {
            let (mut now, mut spent) = (ms(0), ms(0));
            let mut schedule = MeasureSchedule::new(now);
            let mut dearest = ms(0);
            for (cost, is_early) in costs {
                now = now.max(if is_early { schedule.earliest_early() } else { schedule.next_regular() }) + ms(cost);
                schedule.spend(now, ms(cost));
                spent += ms(cost);
                dearest = dearest.max(ms(cost));
                // The initial savings, and what one measurement costs more than the last.
                prop_assert!(spent <= now / SHARE + SAVED_MAX + dearest, "{spent:?} of {now:?}");
            }
        }
    }
}
