//! When to measure. Purely a matter of times, which arrive as values.
//!
//! Time to measure is saved up, a twentieth of what passes, and spent. What is saved suffices for two measurements before
//! the regular one is made, so that an early one can always follow it.

use std::time::Duration;

/// Of the time that passes, one part of so many is for measuring.
const SHARE: u32 = 20;

/// Measurements are at least so far apart.
const SOONEST: Duration = Duration::from_millis(10);

/// And that far when there is no reason to hurry.
const REGULAR: Duration = Duration::from_millis(100);

/// And that far when nothing seems to change.
const SELDOM: Duration = Duration::from_secs(2);

/// No more than this is saved up, or two measurements.
const SAVED_MAX: Duration = Duration::from_millis(250);

/// What is saved up and spent.
#[derive(Debug)]
pub(super) struct Schedule {
    saved: Duration,
    /// What the last one took more than was saved: paid back before anything is saved again.
    owed: Duration,
    /// Up to when the time that passed was counted.
    counted: Duration,
    /// When the last measurement ended.
    last: Option<Duration>,
    /// What the last one took of a processor.
    cost: Duration,
}

impl Schedule {
    pub(super) const fn new(now: Duration) -> Self {
        Self { saved: SAVED_MAX, owed: Duration::ZERO, counted: now, last: None, cost: Duration::ZERO }
    }

    /// A measurement ended that took so much of a processor.
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

    /// When the next measurement is due that has no special reason.
    pub(super) fn regular(&self) -> Duration {
        self.when(REGULAR, self.cost * 2)
    }

    /// When it is due though nothing seems to change.
    pub(super) fn seldom(&self) -> Duration {
        self.when(SELDOM, self.cost * 2)
    }

    /// From when on one can be made that has.
    pub(super) fn early(&self) -> Duration {
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
        let mut schedule = Schedule::new(ms(1000));
        assert_eq!((schedule.early(), schedule.regular()), (ms(1000), ms(1000)));
        schedule.spend(ms(1001), ms(1));
        assert_eq!((schedule.early(), schedule.regular()), (ms(1011), ms(1101)));
    }

    #[test]
    fn dear_ones_are_rare_and_leave_one_in_reserve() {
        let mut schedule = Schedule::new(ms(0));
        schedule.spend(ms(0), ms(250));
        // Nothing is left: one costs 250 ms, for which 5 s must pass.
        assert_eq!((schedule.early(), schedule.regular()), (ms(5_000), ms(10_000)));
        schedule.spend(ms(10_000), ms(250));
        assert_eq!((schedule.early(), schedule.regular()), (ms(10_010), ms(15_000)));
    }

    proptest! {
        #[test]
        fn they_take_a_twentieth_in_the_long_run(costs in prop::collection::vec((0_u64..400, any::<bool>()), 1..200)) {
            let (mut now, mut spent) = (ms(0), ms(0));
            let mut schedule = Schedule::new(now);
            let mut dearest = ms(0);
            for (cost, is_early) in costs {
                now = now.max(if is_early { schedule.early() } else { schedule.regular() }) + ms(cost);
                schedule.spend(now, ms(cost));
                spent += ms(cost);
                dearest = dearest.max(ms(cost));
                // What was saved at the start, and what one costs more than the last let expect.
                prop_assert!(spent <= now / SHARE + SAVED_MAX + dearest, "{spent:?} of {now:?}");
            }
        }
    }
}
