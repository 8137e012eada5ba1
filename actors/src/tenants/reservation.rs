//! The reservation of a model call in the budget, until the call ends.

use std::sync::Arc;

use conjure_base::SessionId;
use conjure_conversation::{ModelError, ModelEvent};

use super::budget::Budget;
use super::partial_usage::{EstimatedUsage, PartialUsage};
use super::tenant_account::{ReserveError, TenantAccount};

/// When a response is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChargeTime {
    /// With the event that records it, in one transaction.
    Recording,
    /// When it arrives, since nothing records it.
    Arrival,
}

/// The reservation of a model call. Dropping it releases the reservation, and charges what the call has used by then,
/// unless its response arrived.
pub(super) struct Reservation {
    account: Arc<TenantAccount>,
    session: SessionId,
    /// The estimated tokens of the request.
    input: u64,
    partial: PartialUsage,
    charge_time: ChargeTime,
    /// Set when the response arrived. It is charged when it is recorded, or released with the session's event log.
    is_settled: bool,
}

impl Reservation {
    /// Reserves what a call that sends this many bytes may cost. If other calls have reserved what is left, waits for their
    /// release.
    pub(super) async fn acquire(
        account: Arc<TenantAccount>,
        session: SessionId,
        bytes: u64,
        charge_time: ChargeTime,
    ) -> Result<Self, ReserveError> {
        account.reserve(session, bytes).await?;
        let input = Budget::tokens_sent(bytes);
        Ok(Self { account, session, input, partial: PartialUsage::default(), charge_time, is_settled: false })
    }

    /// Processes an event of the call's stream.
    pub(super) fn observe(&mut self, event: &Result<ModelEvent, ModelError>) {
        match event {
            Ok(ModelEvent::Finished(response)) => {
                self.is_settled = true;
                match self.charge_time {
                    ChargeTime::Recording => self.account.settle(self.session, &response.usage),
                    ChargeTime::Arrival => {
                        let used = EstimatedUsage { reported: response.usage, unreported_output: 0 };
                        self.account.charge_unrecorded(self.session, &used);
                    }
                }
            }
            Ok(event) => self.partial.observe(event),
            Err(_) => self.partial.failed(),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        match self.partial.used(self.input) {
            Some(used) => self.account.charge_unrecorded(self.session, &used),
            None => self.account.release(self.session),
        }
    }
}
