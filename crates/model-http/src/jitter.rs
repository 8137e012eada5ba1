//! [`Jitter`]: random numbers for jitter, seedable for tests.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared source of numbers between 0 and 1 (SplitMix64). Not for secrets.
#[derive(Debug)]
pub struct Jitter(AtomicU64);

impl Jitter {
    /// A source with a fixed sequence.
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
    #[must_use]
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

    #[test]
    fn a_seed_gives_the_same_numbers_between_0_and_1() {
        let (a, b) = (Jitter::seeded(7), Jitter::seeded(7));
        let numbers: Vec<f64> = (0..100).map(|_| a.next()).collect();
        assert!(numbers.iter().all(|n| (0.0..1.0).contains(n)));
        assert_eq!(numbers, (0..100).map(|_| b.next()).collect::<Vec<_>>());
        assert!(numbers.iter().any(|n| *n < 0.2) && numbers.iter().any(|n| *n > 0.8));
    }
}
