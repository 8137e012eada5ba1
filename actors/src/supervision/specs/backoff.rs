//! The delay before a failed child is restarted.

use std::time::Duration;

/// An exponential delay with a cap and full jitter: each child waits a random part of the delay. So many children that
/// failed together do not restart together. A child that ran for the healthy time starts with the first delay again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    waits: conjure_base::Backoff,
    healthy: Duration,
}

impl Backoff {
    /// No delay: restarts are immediate, as in OTP.
    pub const NONE: Self = Self::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);

    /// The first delay is at most `first`. Each next one is at most twice as long, and never longer than `cap`. After
    /// `healthy` without a failure the first delay applies again.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration, healthy: Duration) -> Self {
        Self { waits: conjure_base::Backoff::new(first, cap), healthy }
    }

    /// How long a child must run until its failures do not count any more.
    #[must_use]
    pub const fn healthy(self) -> Duration {
        self.healthy
    }

    /// The longest possible delay after `failures` earlier failures.
    #[must_use]
    pub fn ceiling(self, failures: u32) -> Duration {
        self.waits.wait(failures)
    }

    /// The delay after `failures` earlier failures. `random`, 64 random bits, selects a part of the ceiling.
    #[must_use]
    pub fn delay(self, failures: u32, random: u64) -> Duration {
        let ceiling = u64::try_from(self.ceiling(failures).as_nanos()).unwrap_or(u64::MAX);
        let part = (u128::from(ceiling) * u128::from(random)) >> 64;
        Duration::from_nanos(u64::try_from(part).unwrap_or(ceiling))
    }
}

impl Default for Backoff {
    /// The first delay is at most 10 ms. Delays double up to 30 s. A minute without a failure resets them.
    fn default() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_secs(30), Duration::from_secs(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    proptest! {
        #[test]
        fn the_wait_is_the_part_of_the_ceiling_that_the_roll_says(failures in 0..40_u32, random: u64) {
            let backoff = Backoff::new(SECOND, SECOND * 30, SECOND);
            let ceiling = backoff.ceiling(failures);
            prop_assert!(backoff.delay(failures, random) < ceiling);
            prop_assert_eq!(backoff.delay(failures, 0), Duration::ZERO);
            prop_assert_eq!(backoff.delay(failures, 1 << 63), ceiling / 2);
            prop_assert!(backoff.delay(failures, random) <= backoff.delay(failures, u64::MAX));
            prop_assert_eq!(Backoff::NONE.delay(failures, random), Duration::ZERO);
        }
    }
}
