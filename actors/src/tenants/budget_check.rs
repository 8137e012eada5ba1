//! A tenant's budget as a state machine without clock and I/O: what is reserved, and whether more fits.
//!
//! What was spent is read from the journal, which takes time. Charges during that time are added, whether the read has seen them or
//! not. So the sum is never too low. A caller that is refused because the sum is too high reads again.

use std::collections::HashMap;

use conjure_base::{SessionId, Timestamp};

use super::budget::{Allowance, Spend};

/// The reservations, and the charges since this state was created.
#[derive(Debug, Default)]
pub(super) struct BudgetState {
    reserved: HashMap<SessionId, Reserved>,
    /// The charges over all time; saturating. Only its growth matters.
    charged: Spend,
}

/// The estimate of a session's call, or its result until that is recorded.
#[derive(Debug, Clone, Copy)]
struct Reserved {
    amount: Spend,
    /// The time of the reservation. The call is charged to the periods of this time, whenever it ends.
    at: Timestamp,
}

/// The charges so far, taken before the journal is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadMark(Spend);

/// Why a call does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortfall {
    /// The allowance that is exceeded.
    pub(super) allowance: Allowance,
    /// The total without the reservations of others.
    pub(super) exclusive_total: u64,
    pub(super) reason: ShortfallReason,
}

/// The reason why a call does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortfallReason {
    /// Others have reserved what is left. They may release some of it.
    ReservedByOthers,
    /// A charge happened during the read, and may have been counted twice.
    ChangedWhileReading,
    /// The allowance is used up.
    Spent,
}

impl BudgetState {
    pub(super) const fn mark(&self) -> ReadMark {
        ReadMark(self.charged)
    }

    /// Whether this amount fits for a call of this session. `spent` is what was spent of each allowance, read after
    /// `mark`.
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
            // Spending counts before reservations that may be released.
            if shortfall.is_none_or(|known| {
                reason == ShortfallReason::Spent && known.reason != ShortfallReason::Spent
            }) {
                shortfall = Some(Shortfall { allowance: *allowance, exclusive_total, reason });
            }
        }
        shortfall.map_or(Ok(()), Err)
    }

    /// Reserves this amount for a call of this session, replacing the reservation of its last call.
    pub(super) fn reserve(&mut self, session: SessionId, amount: Spend, at: Timestamp) {
        self.release(session);
        self.reserved.insert(session, Reserved { amount, at });
    }

    /// Replaces the reservation by what the call used, which is about to be recorded.
    pub(super) fn settle(&mut self, session: SessionId, amount: Spend) {
        if let Some(reserved) = self.reserved.get_mut(&session) {
            reserved.amount = amount;
        }
    }

    /// The time whose periods a response of this session is charged to.
    pub(super) fn at(&self, session: SessionId) -> Option<Timestamp> {
        self.reserved.get(&session).map(|reserved| reserved.at)
    }

    /// A response was recorded and charged.
    pub(super) fn charge(&mut self, session: SessionId, amount: Spend) {
        self.release(session);
        self.charged = self.charged.plus(amount);
    }

    /// Releases the reservation of a call. A concurrent read still counts it, because the response may have been
    /// recorded unnoticed. Returns whether there was one.
    pub(super) fn release(&mut self, session: SessionId) -> bool {
        let Some(reserved) = self.reserved.remove(&session) else { return false };
        self.charged = self.charged.plus(reserved.amount);
        true
    }

    /// The sum of all reservations.
    pub(super) fn reserved(&self) -> Spend {
        self.reserved.values().fold(Spend::default(), |sum, reserved| sum.plus(reserved.amount))
    }
}

#[cfg(test)]
mod tests;
