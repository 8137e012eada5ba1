//! A gauge to which several owners contribute, such as the runtimes of a process with admission gates of the same name.
//! It shows the sum.
//!
//! State: the contribution of this owner, in memory. Dropping it removes the contribution.

use metrics::Gauge;

/// One owner's contribution to a gauge.
#[derive(Default)]
pub(crate) struct GaugeShare {
    share: usize,
    /// The gauge. It is looked up again while the contribution is zero, so that a recorder that is installed late gets
    /// later changes.
    gauge: Option<Gauge>,
}

impl GaugeShare {
    /// Sets the contribution.
    pub(crate) fn set(&mut self, now: usize, gauge: impl FnOnce() -> Gauge) {
        let before = std::mem::replace(&mut self.share, now);
        if before == 0 && (now > 0 || self.gauge.is_none()) {
            self.gauge = Some(gauge());
        }
        let Some(gauge) = &self.gauge else { return };
        #[expect(clippy::cast_precision_loss, reason = "nobody counts so many")]
        match now.checked_sub(before) {
            Some(more) => gauge.increment(more as f64),
            None => gauge.decrement((before - now) as f64),
        }
    }
}

impl Drop for GaugeShare {
    fn drop(&mut self) {
        if self.share > 0 {
            self.set(0, Gauge::noop);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_gauge_is_what_all_have_in_it() {
        let total = Arc::new(AtomicU64::new(0));
        let gauge = || Gauge::from_arc(Arc::clone(&total));
        let is = || f64::from_bits(total.load(Ordering::Relaxed)).to_string();
        let (mut one, mut other) = (GaugeShare::default(), GaugeShare::default());
        one.set(3, gauge);
        other.set(2, gauge);
        assert_eq!(is(), "5");
        one.set(1, || panic!("it has one"));
        assert_eq!(is(), "3");
        other.set(0, gauge);
        other.set(4, gauge);
        drop(one);
        assert_eq!(is(), "4");
        drop(other);
        assert_eq!(is(), "0");
    }

    #[test]
    fn what_was_told_to_nobody_is_not_taken_away_from_whoever_comes_later() {
        let total = Arc::new(AtomicU64::new(0));
        let gauge = || Gauge::from_arc(Arc::clone(&total));
        let mut level = GaugeShare::default();
        level.set(3, Gauge::noop);
        level.set(0, gauge);
        assert_eq!(f64::from_bits(total.load(Ordering::Relaxed)).to_string(), "0");
        level.set(2, gauge);
        assert_eq!(f64::from_bits(total.load(Ordering::Relaxed)).to_string(), "2");
    }
}
