//! The budget that one model call has reserved, until it ends.

use std::sync::Arc;

use conjure_base::SessionId;
use conjure_conversation::{ModelError, ModelEvent};

use super::budget::Budget;
use super::partial_usage::PartialUsage;
use super::tenant_account::{ReserveError, TenantAccount};

/// What a call of a model may come to. Dropping it gives that back, but for what the call has come to by then, unless an answer came.
pub(super) struct Reservation {
    account: Arc<TenantAccount>,
    session: SessionId,
    /// For how many tokens what it sends is taken.
    input: u64,
    partial: PartialUsage,
    /// It is charged when the answer is recorded, or given back with the session's ledger.
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

    /// What the call's stream tells.
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
