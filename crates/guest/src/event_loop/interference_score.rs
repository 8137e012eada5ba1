//! [`Interference`]: how much the commands disturbed the guest's own processes recently.

/// The score at which the guest kills suspects.
const LIMIT: u32 = 24;

/// The score of stopping a shim or worker.
pub(super) const STOPPED: u32 = 1;

/// The score of killing a shim or worker, which makes a call fail.
pub(super) const KILLED: u32 = 8;

/// The score of stopping a program until its timeout. The call fails after all of its time.
pub(super) const STALLED: u32 = 12;

/// The score of a call that a signal or its timeout ended, while processes of earlier calls run.
pub(super) const FAILED: u32 = 8;

/// How much a shim or worker that completed its work takes off.
const ANSWERED: u32 = 2;

/// The score of recent interference, minus that of completed work.
#[derive(Debug, Default)]
pub(super) struct Interference {
    score: u32,
}

impl Interference {
    /// Records that a shim or worker completed its work.
    pub(super) fn answered(&mut self) {
        self.score = self.score.saturating_sub(ANSWERED);
    }

    /// Adds `score`, and returns whether the limit is reached. Then the score starts at zero again.
    pub(super) fn add(&mut self, score: u32) -> bool {
        self.score = self.score.saturating_add(score);
        let is_limit_reached = self.score >= LIMIT;
        if is_limit_reached {
            self.score = 0;
        }
        is_limit_reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_signals_are_tolerated_and_many_are_not() {
        let mut interference = Interference::default();
        assert_eq!([KILLED, KILLED, KILLED].map(|score| interference.add(score)), [false, false, true]);
        assert!(!interference.add(LIMIT - 1), "it begins anew");
        interference.answered();
        assert!(!interference.add(ANSWERED), "what is done since counts");
        assert!(interference.add(STOPPED));
    }
}
