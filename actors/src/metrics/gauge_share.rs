//! A gauge that several have a part in, as the runtimes of a process have in one of their gates' or pools' names: it is the sum.
//!
//! State: what this one has in it, in memory, which is taken out of it again when it is dropped.

use std::fmt;

use metrics::Gauge;

/// What one of them has in a gauge.
#[derive(Default)]
pub(crate) struct GaugeShare {
    share: usize,
    /// Where that is. It is asked for anew when there is nothing, so that a recorder that is installed late is told of what comes.
    gauge: Option<Gauge>,
}

impl GaugeShare {
    /// It has so much in this gauge now.
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

impl fmt::Debug for GaugeShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Level").field(&self.share).finish()
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
