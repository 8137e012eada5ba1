//! [`Interference`]: how much the commands disturbed the guest's own processes recently.

/// The weight at which the guest kills suspects.
const LIMIT: u32 = 24;

/// The weight of stopping a shim or worker.
pub(super) const STOPPED: u32 = 1;

/// The weight of killing a shim or worker, which makes a call fail.
pub(super) const KILLED: u32 = 8;

/// The weight of stopping a program until its timeout. The call fails after all of its time.
pub(super) const STALLED: u32 = 12;

/// How much a shim or worker that completed its work takes off.
const ANSWERED: u32 = 2;

/// The weight of recent interference, minus that of completed work.
#[derive(Debug, Default)]
pub(super) struct Interference {
    weight: u32,
}

impl Interference {
    /// Records that a shim or worker completed its work.
    pub(super) fn answered(&mut self) {
        self.weight = self.weight.saturating_sub(ANSWERED);
    }

    /// Adds weight, and returns whether the limit is reached. Then the weight starts at zero again.
    pub(super) fn add(&mut self, weight: u32) -> bool {
        self.weight = self.weight.saturating_add(weight);
        let is_limit_reached = self.weight >= LIMIT;
        if is_limit_reached {
            self.weight = 0;
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
        assert_eq!([KILLED, KILLED, KILLED].map(|weight| interference.add(weight)), [false, false, true]);
        assert!(!interference.add(LIMIT - 1), "it begins anew");
        interference.answered();
        assert!(!interference.add(ANSWERED), "what is done since counts");
        assert!(interference.add(STOPPED));
    }
}
