//! The charging of usage to a tenant's account: for recorded events, aborted calls, and responses that nothing records.
//!
//! State: none of its own. The charges that no event carries are pending in the account until the journal has them.

use std::sync::Arc;

use conjure_base::{SessionId, Timestamp};
use conjure_conversation::Event;
use conjure_journal::CounterIncrement;

use super::budget::{BudgetResource, Period, Spend};
use super::counter_names::counter_name;
use super::partial_usage::EstimatedUsage;
use super::tenant_account::TenantAccount;

impl TenantAccount {
    /// The charges for events of a session: the usage of their responses and summaries.
    pub(crate) fn charges(&self, session: SessionId, events: &[Event]) -> (Spend, Vec<CounterIncrement>) {
        let state = self.lock();
        let used = events.iter().filter_map(|event| event.kind.usage());
        let amounts = used.map(|usage| state.limits.budget.amount(usage));
        let amount = amounts.fold(Spend::default(), Spend::plus);
        // The periods are those for which the reservation was made.
        let at = state.budget.at(session).unwrap_or_else(|| self.clock.timestamp());
        drop(state);
        (amount, charges_for(amount, at))
    }

    /// Charges a call that nothing records: it ended without a response, and the service may bill it, or its response is not an event.
    pub(super) fn charge_unrecorded(self: &Arc<Self>, session: SessionId, used: &EstimatedUsage) {
        let state = self.lock();
        let amount = state.limits.budget.estimated_amount(used);
        let at = state.budget.at(session).unwrap_or_else(|| self.clock.timestamp());
        drop(state);
        self.add_pending_charge(session, amount, charges_for(amount, at));
    }

    /// Adds a charge that no event carries.
    pub(crate) fn add_pending_charge(
        self: &Arc<Self>,
        session: SessionId,
        amount: Spend,
        charges: Vec<CounterIncrement>,
    ) {
        let charge_fn = self.charge_fn();
        let mut state = self.lock();
        // A concurrent read may or may not have seen the charge.
        state.budget.settle(session, Spend::default());
        state.budget.charge(session, amount);
        let has_charges = !charges.is_empty();
        if has_charges {
            state.pending.add(charges, &charge_fn);
        }
        drop(state);
        if has_charges {
            // The account outlives its sessions until the journal has its charges.
            self.account_ref.hold(self);
        }
        self.notify();
    }

    /// Events were recorded and charged.
    pub(crate) fn on_charged(&self, session: SessionId, amount: Spend) {
        self.lock().budget.charge(session, amount);
        self.notify();
    }
}

/// The counter increments of this amount, in the periods of that time.
fn charges_for(amount: Spend, at: Timestamp) -> Vec<CounterIncrement> {
    let resources = [BudgetResource::Tokens, BudgetResource::Cost]
        .into_iter()
        .filter(|resource| amount.of(*resource) > 0);
    let charges = resources.flat_map(|resource| {
        [Period::Total, Period::Day, Period::Month]
            .map(|period| CounterIncrement::new(counter_name(resource, period, at), amount.of(resource)))
    });
    charges.collect()
}
