//! The accounts of all tenants, and what each may have.
//!
//! State: in memory. The host says anew after a start what tenants may have. An account is there while somebody has a session of its
//! tenant, or asks how it stands: nothing is live or reserved otherwise, and what was spent is in the journal.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use conjure_base::{Clock, TenantId};
use tokio::sync::OwnedMutexGuard;

use super::quota::{Quota, QuotaExceeded, TenantLimits};
use super::tenant_account::TenantAccount;
use crate::journal::{JournalCallError, JournalHandle};
use crate::runtime::TreeError;
use crate::session::SessionError;

/// What tenants may have, and what they have. Cheap to clone: the clones are the same.
#[derive(Clone)]
pub struct TenantAccounts {
    inner: Arc<Inner>,
}

struct Inner {
    journal: JournalHandle,
    clock: Arc<dyn Clock>,
    state: Mutex<AccountsState>,
}

struct AccountsState {
    /// What a tenant may have of which nothing was said.
    default: Arc<TenantLimits>,
    overrides: BTreeMap<TenantId, Arc<TenantLimits>>,
    accounts: BTreeMap<TenantId, Weak<TenantAccount>>,
    /// Those that owe something which the journal has not acknowledged.
    with_pending_charges: BTreeMap<TenantId, Arc<TenantAccount>>,
}

/// The right to record one more session, while the account is the one that all others wait at.
pub(crate) struct RecordSlot {
    _turn: OwnedMutexGuard<()>,
    _account: Arc<TenantAccount>,
}

/// Where an account is found: it is no more when the account is gone.
pub(super) struct AccountRef {
    accounts: Weak<Inner>,
    tenant: TenantId,
}

/// How a tenant stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStatus {
    /// How many of its sessions are live here.
    pub live_sessions: u64,
    /// How many of its sessions are recorded, by any process.
    pub recorded_sessions: u64,
    /// What it has spent: tokens and money, in all, this day and this month.
    pub spent: Vec<Spent>,
    /// How many tokens the model calls that are under way here may come to.
    pub reserved_tokens: u64,
    /// How many millionths of a dollar they may come to.
    pub reserved_cost_micros: u64,
}

/// What was spent of something over a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spent {
    /// Of what.
    pub quota: Quota,
    /// How much.
    pub used: u64,
    /// How much may be; `None`: as much as it likes.
    pub limit: Option<u64>,
}

impl TenantAccounts {
    /// Accounts over this journal. By the clock it is known which day it is.
    #[must_use]
    pub fn new(journal: JournalHandle, clock: Arc<dyn Clock>) -> Self {
        let state = AccountsState {
            default: Arc::new(TenantLimits::default()),
            overrides: BTreeMap::new(),
            accounts: BTreeMap::new(),
            with_pending_charges: BTreeMap::new(),
        };
        Self { inner: Arc::new(Inner { journal, clock, state: Mutex::new(state) }) }
    }

    /// What a tenant may have of which nothing was said, from now on.
    pub fn set_default(&self, limits: TenantLimits) {
        let mut state = self.inner.lock();
        state.default = Arc::new(limits);
        let AccountsState { default, overrides, accounts, .. } = &*state;
        let others = accounts.iter().filter(|(tenant, _)| !overrides.contains_key(tenant));
        let others: Vec<_> = others.filter_map(|(_, account)| account.upgrade()).collect();
        for account in &others {
            account.set_limits(Arc::clone(default));
        }
        drop(state);
        // The last of an account takes it out of the state.
        drop(others);
    }

    /// What the tenant may have, from now on; `None`: what every tenant may. Nothing is taken from sessions that are live, and
    /// calls that are under way end as they do.
    pub fn set(&self, tenant: &TenantId, limits: Option<TenantLimits>) {
        let mut state = self.inner.lock();
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

    /// What the tenant may have.
    #[must_use]
    pub fn limits(&self, tenant: &TenantId) -> Arc<TenantLimits> {
        let state = self.inner.lock();
        Arc::clone(state.overrides.get(tenant).unwrap_or(&state.default))
    }

    /// How the tenant stands.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn status(&self, tenant: &TenantId) -> Result<TenantStatus, TreeError> {
        self.account(tenant).status().await.map_err(failed)
    }

    /// How many bytes of the journal the tenant's sessions take ([`Journal::stored_bytes`](conjure_journal::Journal::stored_bytes)).
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn recorded_bytes(&self, tenant: &TenantId) -> Result<u64, TreeError> {
        self.inner.journal.call(|journal| journal.stored_bytes(tenant)).await.map_err(failed)
    }

    /// Submits to the journal again what tenants owe for calls that were broken off and it has surely not carried out. To be called now
    /// and then: a tenant's next call does it, too, if there is one.
    pub fn flush_pending(&self) {
        let with_pending_charges: Vec<_> = self.inner.lock().with_pending_charges.values().cloned().collect();
        for account in with_pending_charges {
            if account.flush_pending() {
                account.release_if_settled();
            }
        }
    }

    /// The tenant has no sessions any more: what is known of it here is forgotten, but for what it may have.
    pub fn remove(&self, tenant: &TenantId) {
        let mut state = self.inner.lock();
        state.accounts.remove(tenant);
        let with_pending_charges = state.with_pending_charges.remove(tenant);
        drop(state);
        if let Some(account) = with_pending_charges {
            account.discard_pending();
        }
    }

    pub(crate) fn account(&self, tenant: &TenantId) -> Arc<TenantAccount> {
        let mut state = self.inner.lock();
        if let Some(known) = state.accounts.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        let limits = Arc::clone(state.overrides.get(tenant).unwrap_or(&state.default));
        let (journal, clock) = (self.inner.journal.clone(), Arc::clone(&self.inner.clock));
        let account_ref = AccountRef { accounts: Arc::downgrade(&self.inner), tenant: tenant.clone() };
        let account = Arc::new(TenantAccount::new(account_ref, limits, journal, clock));
        state.accounts.insert(tenant.clone(), Arc::downgrade(&account));
        account
    }

    /// The right to record one more session of the tenant. Within this process sessions are recorded one after the other where
    /// they are counted; each further process may record one more at the same moment.
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

impl Inner {
    fn lock(&self) -> MutexGuard<'_, AccountsState> {
        // Every change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountRef {
    pub(super) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The account is there, whoever else lets go of it.
    pub(super) fn hold(&self, account: &Arc<TenantAccount>) {
        let Some(accounts) = self.accounts.upgrade() else { return };
        let before = accounts.lock().with_pending_charges.insert(self.tenant.clone(), Arc::clone(account));
        drop(before);
    }

    /// The account may go when nobody has it, unless it owes something by now.
    pub(super) fn release_if_settled(&self) {
        let Some(accounts) = self.accounts.upgrade() else { return };
        let mut state = accounts.lock();
        let has_paid =
            state.with_pending_charges.get(&self.tenant).is_some_and(|account| account.flush_pending());
        let account = if has_paid { state.with_pending_charges.remove(&self.tenant) } else { None };
        drop(state);
        drop(account);
    }
}

impl Drop for AccountRef {
    fn drop(&mut self) {
        let Some(accounts) = self.accounts.upgrade() else { return };
        let mut state = accounts.lock();
        // Another account may have taken its place.
        if state.accounts.get(&self.tenant).is_some_and(|account| account.strong_count() == 0) {
            state.accounts.remove(&self.tenant);
        }
    }
}

impl fmt::Debug for TenantAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenancy").finish_non_exhaustive()
    }
}
