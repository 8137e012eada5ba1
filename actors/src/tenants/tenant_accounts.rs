//! The accounts of all tenants, and their limits.
//!
//! State: in memory. The embedder sets the limits after each start. An account exists while a session of its tenant has a handle,
//! while its status is read, or while charges are pending. Otherwise nothing is live or reserved, and the spending is in the
//! journal.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use conjure_base::{Clock, TenantId};
use conjure_conversation::Model;
use tokio::sync::OwnedMutexGuard;

use super::account_registry::{AccountRegistry, AccountsState};
use super::budgeted_model::BudgetedModel;
use super::quota::{Quota, QuotaExceeded, TenantLimits, TenantStatus};
use super::tenant_account::TenantAccount;
use crate::journal::{JournalCallError, JournalHandle};
use crate::runtime::TreeError;
use crate::session::SessionError;

/// The limits of tenants and their accounts. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct TenantAccounts {
    inner: Arc<Inner>,
}

struct Inner {
    journal: JournalHandle,
    clock: Arc<dyn Clock>,
    registry: Arc<AccountRegistry<TenantAccount>>,
}

/// The right to record one more session. It holds the account, so that all others wait for the same lock.
pub(crate) struct RecordSlot {
    _turn: OwnedMutexGuard<()>,
    _account: Arc<TenantAccount>,
}

impl TenantAccounts {
    /// Accounts over this journal. The clock determines the current day and month.
    #[must_use]
    pub fn new(journal: JournalHandle, clock: Arc<dyn Clock>) -> Self {
        let state = AccountsState {
            default: Arc::new(TenantLimits::default()),
            overrides: BTreeMap::new(),
            accounts: BTreeMap::new(),
            with_pending_charges: BTreeMap::new(),
        };
        Self { inner: Arc::new(Inner { journal, clock, registry: Arc::new(AccountRegistry::new(state)) }) }
    }

    /// Sets the limits of tenants that have none of their own, from now on.
    pub fn set_default(&self, limits: TenantLimits) {
        let mut state = self.inner.registry.lock();
        state.default = Arc::new(limits);
        let AccountsState { default, overrides, accounts, .. } = &*state;
        let others = accounts.iter().filter(|(tenant, _)| !overrides.contains_key(tenant));
        let others: Vec<_> = others.filter_map(|(_, account)| account.upgrade()).collect();
        for account in &others {
            account.set_limits(Arc::clone(default));
        }
        drop(state);
        // Dropping the last reference to an account locks the state, so the state is unlocked first.
        drop(others);
    }

    /// Sets the limits of a tenant from now on; `None`: the default limits. Live sessions and running calls continue.
    pub fn set(&self, tenant: &TenantId, limits: Option<TenantLimits>) {
        let mut state = self.inner.registry.lock();
        let limits = match limits {
            Some(limits) => {
                let limits = Arc::new(limits);
                state.overrides.insert(tenant.clone(), Arc::clone(&limits));
                limits
            }
            None => {
                state.overrides.remove(tenant);
                Arc::clone(&state.default)
            }
        };
        let account = state.accounts.get(tenant).and_then(Weak::upgrade);
        if let Some(account) = &account {
            account.set_limits(limits);
        }
        drop(state);
        drop(account);
    }

    /// The limits of a tenant.
    #[must_use]
    pub fn limits(&self, tenant: &TenantId) -> Arc<TenantLimits> {
        let state = self.inner.registry.lock();
        Arc::clone(state.overrides.get(tenant).unwrap_or(&state.default))
    }

    /// The status of a tenant.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub async fn status(&self, tenant: &TenantId) -> Result<TenantStatus, TreeError> {
        self.account(tenant).status().await.map_err(failed)
    }

    /// How many bytes of the journal the tenant's sessions use
    /// ([`Journal::stored_bytes`](conjure_journal::Journal::stored_bytes)).
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub async fn recorded_bytes(&self, tenant: &TenantId) -> Result<u64, TreeError> {
        self.inner.journal.call(|journal| journal.stored_bytes(tenant)).await.map_err(failed)
    }

    /// Submits again the charges of aborted calls that the journal certainly did not carry out. Call it periodically; a
    /// tenant's next call does it as well.
    pub fn flush_pending(&self) {
        let with_pending_charges: Vec<_> =
            self.inner.registry.lock().with_pending_charges.values().cloned().collect();
        for account in with_pending_charges {
            if account.flush_pending() {
                account.release_if_settled();
            }
        }
    }

    /// A model for calls that no session of the tenant records. Each call is charged to the tenant's budget when its response
    /// arrives.
    #[must_use]
    pub fn budgeted_model(&self, tenant: &TenantId, model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(BudgetedModel::unrecorded(model, self.account(tenant)))
    }

    /// Forgets a tenant without sessions, except its limits.
    pub fn remove(&self, tenant: &TenantId) {
        let mut state = self.inner.registry.lock();
        state.accounts.remove(tenant);
        let with_pending_charges = state.with_pending_charges.remove(tenant);
        drop(state);
        if let Some(account) = with_pending_charges {
            account.discard_pending();
        }
    }

    pub(crate) fn account(&self, tenant: &TenantId) -> Arc<TenantAccount> {
        let mut state = self.inner.registry.lock();
        if let Some(known) = state.accounts.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        let limits = Arc::clone(state.overrides.get(tenant).unwrap_or(&state.default));
        let (journal, clock) = (self.inner.journal.clone(), Arc::clone(&self.inner.clock));
        let account_ref = self.inner.registry.account_ref(tenant.clone());
        let account = Arc::new(TenantAccount::new(account_ref, limits, journal, clock));
        state.accounts.insert(tenant.clone(), Arc::downgrade(&account));
        account
    }

    /// The right to record one more session of the tenant. Within this process, sessions are recorded one after the
    /// other while they are counted. Each further process may record one more at the same moment.
    pub(crate) async fn record_one(&self, tenant: &TenantId) -> Result<Option<RecordSlot>, TreeError> {
        let limit = self.limits(tenant).recorded_sessions;
        if limit == u64::MAX {
            return Ok(None);
        }
        let account = self.account(tenant);
        let turn = Arc::clone(account.record_lock()).lock_owned().await;
        let count = self.inner.journal.call(|journal| journal.session_count(tenant)).await.map_err(failed)?;
        if count >= limit {
            let current = count.saturating_add(1);
            let exceeded = QuotaExceeded::new(tenant.clone(), Quota::RecordedSessions, limit, current);
            return Err(SessionError::Quota(exceeded).into());
        }
        Ok(Some(RecordSlot { _turn: turn, _account: account }))
    }
}

fn failed(error: JournalCallError) -> TreeError {
    match error {
        JournalCallError::Journal(error) => TreeError::Journal(error),
        JournalCallError::Unavailable(waited) => TreeError::JournalUnavailable { reason: waited.to_string() },
    }
}

impl fmt::Debug for TenantAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantAccounts").finish_non_exhaustive()
    }
}
