//! A tenant's budget as a machine without a clock and without I/O: what is reserved, and whether more fits.
//!
//! What was spent is read from the journal, which takes a moment; what is charged in that moment is counted in addition, whether
//! the reading has it or not. So the sum is never less than what was spent, and whoever is refused by too large a sum reads
//! again.

use std::collections::HashMap;

use conjure_base::{SessionId, Timestamp};

use super::budget::{Allowance, Spend};

/// What is reserved, and what was charged since this began.
#[derive(Debug, Default)]
pub(super) struct BudgetState {
    reserved: HashMap<SessionId, Reserved>,
    /// What may have been charged, over all time; stops at the largest number. Only what it grows by counts.
    charged: Spend,
}

/// What a call of a session may come to, or has come to and is not recorded yet.
#[derive(Debug, Clone, Copy)]
struct Reserved {
    amount: Spend,
    /// In which periods it fitted, and is charged to, whenever it ends.
    at: Timestamp,
}

/// Before what was spent is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadMark(Spend);

/// Something does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortfall {
    /// Into which allowance.
    pub(super) allowance: Allowance,
    /// What it would come to without what others have reserved.
    pub(super) exclusive_total: u64,
    pub(super) reason: ShortfallReason,
}

/// Why something does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortfallReason {
    /// Others have reserved what is left. Some of that may come back.
    ReservedByOthers,
    /// Something was charged while it was read, and may have been counted twice.
    ChangedWhileReading,
    /// It is spent.
    Spent,
}

impl BudgetState {
    pub(super) const fn mark(&self) -> ReadMark {
        ReadMark(self.charged)
    }

    /// Whether so much more fits for a call of this session. `spent` is what was spent of each allowance, read after `mark`.
    pub(super) fn fits(
        &self,
        session: SessionId,
        amount: Spend,
        allowances: &[Allowance],
        spent: &[u64],
        mark: ReadMark,
    ) -> Result<(), Shortfall> {
        let since = self.charged.minus(mark.0);
        let others = self.reserved.iter().filter(|(other, _)| **other != session);
        let others = others.fold(Spend::default(), |sum, (_, reserved)| sum.plus(reserved.amount));
        let mut shortfall: Option<Shortfall> = None;
        for (allowance, spent) in allowances.iter().zip(spent) {
            let (resource, _, limit) = allowance.parts();
            let exclusive_total =
                spent.saturating_add(since.of(resource)).saturating_add(amount.of(resource));
            if exclusive_total.saturating_add(others.of(resource)) <= limit && limit > 0 {
                continue;
            }
            let reason = if exclusive_total <= limit && limit > 0 {
                ShortfallReason::ReservedByOthers
            } else if since.of(resource) > 0 && limit > 0 {
                ShortfallReason::ChangedWhileReading
            } else {
                ShortfallReason::Spent
            };
            // What is spent counts before what may come back.
            if shortfall.is_none_or(|known| {
                reason == ShortfallReason::Spent && known.reason != ShortfallReason::Spent
            }) {
                shortfall = Some(Shortfall { allowance: *allowance, exclusive_total, reason });
            }
        }
        shortfall.map_or(Ok(()), Err)
    }

    /// Reserves so much for a call of this session, in place of what was reserved for its last one.
    pub(super) fn reserve(&mut self, session: SessionId, amount: Spend, at: Timestamp) {
        self.release(session);
        self.reserved.insert(session, Reserved { amount, at });
    }

    /// The call has come to this, which is about to be recorded.
    pub(super) fn settle(&mut self, session: SessionId, amount: Spend) {
        if let Some(reserved) = self.reserved.get_mut(&session) {
            reserved.amount = amount;
        }
    }

    /// To which moment's periods an answer of this session is charged.
    pub(super) fn at(&self, session: SessionId) -> Option<Timestamp> {
        self.reserved.get(&session).map(|reserved| reserved.at)
    }

    /// An answer was recorded and charged.
    pub(super) fn charge(&mut self, session: SessionId, amount: Spend) {
        self.release(session);
        self.charged = self.charged.plus(amount);
    }

    /// The call has come to nothing, as far as it is known: whoever reads just now counts it all the same, since the answer may be
    /// recorded although nobody heard of it. Whether there was one.
    pub(super) fn release(&mut self, session: SessionId) -> bool {
        let Some(reserved) = self.reserved.remove(&session) else { return false };
        self.charged = self.charged.plus(reserved.amount);
        true
    }

    /// All that is reserved.
    pub(super) fn reserved(&self) -> Spend {
        self.reserved.values().fold(Spend::default(), |sum, reserved| sum.plus(reserved.amount))
    }
}

#[cfg(test)]
mod tests;
