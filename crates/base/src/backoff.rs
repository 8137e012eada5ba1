//! Waits between attempts: exponential growth up to a maximum, and random jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A wait that doubles with each attempt, up to a maximum.
///
/// Jitter shortens a wait by a random part, so that many callers that failed together do not all retry together.
///
/// ```
/// use std::time::Duration;
/// use conjure_base::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));
/// assert_eq!(backoff.wait(3), Duration::from_secs(4));
/// assert_eq!(backoff.wait(30), Duration::from_secs(8));
/// // "Equal jitter": at least half of the wait.
/// assert_eq!(backoff.jittered(3, 0.5, 0.5), Duration::from_secs(3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// The wait after the first failure is `first`. No wait is longer than `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// The wait after `failures` earlier failures (0: after the first one), without jitter.
    #[must_use]
    pub fn wait(self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures).and_then(|factor| self.first.checked_mul(factor));
        doubled.map_or(self.max, |wait| wait.min(self.max))
    }

    /// The same wait, shortened by the part `share * random`. Both numbers are from 0 to 1; [`Jitter::next`] gives
    /// the random one. With a share of 1 ("full jitter") the wait may become zero. With a share of 0.25 it loses at
    /// most a quarter.
    #[must_use]
    pub fn jittered(self, failures: u32, share: f64, random: f64) -> Duration {
        let wait = self.wait(failures);
        let part = 1.0 - share.clamp(0.0, 1.0) * random.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(wait.as_secs_f64() * part).map_or(wait, |jittered| jittered.min(wait))
    }
}

/// A shared source of random numbers for jitter (SplitMix64). Not for secrets.
#[derive(Debug)]
pub struct Jitter(AtomicU64);

impl Jitter {
    /// A source that always gives the same numbers, for tests.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A source that differs from process to process.
    #[must_use]
    pub fn random() -> Self {
        Self::seeded(RandomState::new().build_hasher().finish())
    }

    /// The next number, at least 0 and below 1.
    pub fn next(&self) -> f64 {
        const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
        let unit = (z >> 11) as f64 / (1u64 << 53) as f64;
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_wait_doubles_up_to_the_maximum() {
        let backoff = Backoff::new(SECOND, SECOND * 10);
        let waits: Vec<u64> =
            [0, 1, 2, 3, 4, 31, 32, u32::MAX].map(|failures| backoff.wait(failures).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10, 10, 10]);
        assert_eq!(Backoff::new(Duration::ZERO, SECOND).jittered(7, 1.0, 0.5), Duration::ZERO);
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).jittered(0, 1.0, 0.0), Duration::MAX);
    }

    #[test]
    fn a_seed_gives_the_same_numbers_between_0_and_1() {
        let (a, b) = (Jitter::seeded(7), Jitter::seeded(7));
        let numbers: Vec<f64> = (0..100).map(|_| a.next()).collect();
        assert!(numbers.iter().all(|n| (0.0..1.0).contains(n)));
        assert_eq!(numbers, (0..100).map(|_| b.next()).collect::<Vec<_>>());
        assert!(numbers.iter().any(|n| *n < 0.2) && numbers.iter().any(|n| *n > 0.8));
    }

    proptest! {
        #[test]
        fn jitter_only_shortens_a_wait_and_by_its_share_at_most(
            failures in 0..40_u32, share in 0.0..=1.0, random in 0.0..1.0,
        ) {
            let backoff = Backoff::new(SECOND, SECOND * 30);
            let (wait, jittered) = (backoff.wait(failures), backoff.jittered(failures, share, random));
            prop_assert!(jittered <= wait);
            prop_assert!(jittered.as_secs_f64() >= wait.as_secs_f64() * (1.0 - share) - 1e-6);
            prop_assert_eq!(backoff.jittered(failures, share, 0.0), wait);
        }
    }
}
