//! The restarts that count towards a meltdown: those within a span that slides with time.

use std::collections::VecDeque;

use super::types::Moment;
use crate::supervision::policy::Intensity;

/// Whether one more restart is still in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Bearable,
    TooMuch,
}

/// When the last restarts were; never more of them than the intensity allows, and one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    restarts: VecDeque<Moment>,
}

impl Window {
    /// Counts a restart now.
    pub(crate) fn count(&mut self, now: Moment, intensity: Intensity) -> Load {
        while self.restarts.front().is_some_and(|earlier| now.since(*earlier) > intensity.within()) {
            self.restarts.pop_front();
        }
        self.restarts.push_back(now);
        if self.restarts.len() > usize::try_from(intensity.restarts()).unwrap_or(usize::MAX) {
            Load::TooMuch
        } else {
            Load::Bearable
        }
    }

    pub(crate) fn clear(&mut self) {
        self.restarts.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn loads(restarts: u32, times: &[u64]) -> Vec<Load> {
        let mut window = Window::default();
        let intensity = Intensity::new(restarts, Duration::from_secs(5));
        times.iter().map(|at| window.count(Moment(Duration::from_secs(*at)), intensity)).collect()
    }

    #[test]
    fn the_window_slides() {
        use Load::{Bearable, TooMuch};
        assert_eq!(loads(0, &[7]), [TooMuch]);
        assert_eq!(loads(2, &[0, 4, 5]), [Bearable, Bearable, TooMuch], "the fifth second still counts");
        assert_eq!(loads(2, &[0, 4, 6, 9]), [Bearable, Bearable, Bearable, TooMuch]);
        assert_eq!(
            loads(1, &[0, 6, 12, 18]),
            [Bearable; 4],
            "tumbling windows would agree, at 4 and 6 they do not"
        );
        assert_eq!(loads(1, &[4, 6]), [Bearable, TooMuch]);
    }
}
