//! Counts restarts within a sliding period, for the restart limit.

use std::collections::VecDeque;

use super::types::Uptime;
use crate::supervision::specs::policy::Intensity;

/// Whether one more restart is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartCheck {
    Within,
    Exceeded,
}

/// The times of the last restarts. It holds at most one more than the limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct RestartWindow {
    restarts: VecDeque<Uptime>,
}

impl RestartWindow {
    /// Counts a restart at `now`, and checks the limit.
    pub(crate) fn count(&mut self, now: Uptime, intensity: Intensity) -> RestartCheck {
        while self.restarts.front().is_some_and(|earlier| now.since(*earlier) > intensity.period()) {
            self.restarts.pop_front();
        }
        self.restarts.push_back(now);
        if self.restarts.len() > usize::try_from(intensity.restarts()).unwrap_or(usize::MAX) {
            RestartCheck::Exceeded
        } else {
            RestartCheck::Within
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

    fn checks(restarts: u32, times: &[u64]) -> Vec<RestartCheck> {
        let mut window = RestartWindow::default();
        let intensity = Intensity::new(restarts, Duration::from_secs(5));
        times.iter().map(|at| window.count(Uptime(Duration::from_secs(*at)), intensity)).collect()
    }

    #[test]
    fn the_window_slides() {
        use RestartCheck::{Exceeded, Within};
        assert_eq!(checks(0, &[7]), [Exceeded]);
        assert_eq!(checks(2, &[0, 4, 5]), [Within, Within, Exceeded], "the fifth second still counts");
        assert_eq!(checks(2, &[0, 4, 6, 9]), [Within, Within, Within, Exceeded]);
        assert_eq!(
            checks(1, &[0, 6, 12, 18]),
            [Within; 4],
            "tumbling windows would agree, at 4 and 6 they do not"
        );
        assert_eq!(checks(1, &[4, 6]), [Within, Exceeded]);
    }
}
