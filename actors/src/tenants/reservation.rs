//! The reservation of a model call in the budget, until the call ends.

use std::sync::Arc;

use conjure_base::SessionId;
use conjure_conversation::{ModelError, ModelEvent};

use super::budget::Budget;
use super::partial_usage::PartialUsage;
use super::tenant_account::{ReserveError, TenantAccount};

/// The reservation of a model call. Dropping it releases the reservation, and charges what the call has used by then,
/// unless its response arrived.
pub(super) struct Reservation {
    account: Arc<TenantAccount>,
    session: SessionId,
    /// The estimated tokens of the request.
    input: u64,
    partial: PartialUsage,
    /// Set when the response arrived. It is charged when it is recorded, or released with the session's event log.
    is_settled: bool,
}

impl Reservation {
    /// Reserves what a call that sends this many bytes may cost. Waits for the reservations of other calls, which may be released.
    pub(super) async fn acquire(
        account: Arc<TenantAccount>,
        session: SessionId,
        bytes: u64,
    ) -> Result<Self, ReserveError> {
        account.reserve(session, bytes).await?;
        let input = Budget::tokens_sent(bytes);
        Ok(Self { account, session, input, partial: PartialUsage::default(), is_settled: false })
    }

    /// Processes an event of the call's stream.
    pub(super) fn observe(&mut self, event: &Result<ModelEvent, ModelError>) {
        match event {
            Ok(ModelEvent::Finished(response)) => {
                self.is_settled = true;
                self.account.settle(self.session, &response.usage);
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
            Some(used) => self.account.charge_aborted(self.session, &used),
            None => self.account.release(self.session),
        }
    }
}
