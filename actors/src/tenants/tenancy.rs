//! The accounts of all tenants, and what each may have.
//!
//! State: in memory. The host says anew after a start what tenants may have. An account is there while somebody has a session of its
//! tenant, or asks how it stands: nothing is live or reserved otherwise, and what was spent is in the journal.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use conjure_base::{Clock, TenantId};
use tokio::sync::OwnedMutexGuard;

use super::account::Account;
use super::quota::{Quota, QuotaExceeded};
use super::terms::Terms;
use crate::journal::{CallFailure, JournalAccess};
use crate::runtime::RuntimeError;
use crate::session::SessionError;

/// What tenants may have, and what they have. Cheap to clone: the clones are the same.
#[derive(Clone)]
pub struct Tenancy {
    inner: Arc<Inner>,
}

struct Inner {
    journal: JournalAccess,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    /// What a tenant may have of which nothing was said.
    standard: Arc<Terms>,
    own: BTreeMap<TenantId, Arc<Terms>>,
    accounts: BTreeMap<TenantId, Weak<Account>>,
    /// Those that owe something which the journal has not acknowledged.
    owing: BTreeMap<TenantId, Arc<Account>>,
}

/// The right to record one more session, while the account is the one that all others wait at.
pub(crate) struct Recording {
    _turn: OwnedMutexGuard<()>,
    _account: Arc<Account>,
}

/// Where an account is found: it is no more when the account is gone.
pub(super) struct Entry {
    tenancy: Weak<Inner>,
    tenant: TenantId,
}

/// How a tenant stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
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

impl Tenancy {
    /// Accounts over this journal. By the clock it is known which day it is.
    #[must_use]
    pub fn new(journal: JournalAccess, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            standard: Arc::new(Terms::default()),
            own: BTreeMap::new(),
            accounts: BTreeMap::new(),
            owing: BTreeMap::new(),
        };
        Self { inner: Arc::new(Inner { journal, clock, state: Mutex::new(state) }) }
    }

    /// What a tenant may have of which nothing was said, from now on.
    pub fn set_standard(&self, terms: Terms) {
        let mut state = self.inner.lock();
        state.standard = Arc::new(terms);
        let State { standard, own, accounts, .. } = &*state;
        let others = accounts.iter().filter(|(tenant, _)| !own.contains_key(tenant));
        let others: Vec<_> = others.filter_map(|(_, account)| account.upgrade()).collect();
        for account in &others {
            account.set_terms(Arc::clone(standard));
        }
        drop(state);
        // The last of an account takes it out of the state.
        drop(others);
    }

    /// What the tenant may have, from now on; `None`: what every tenant may. Nothing is taken from sessions that are live, and
    /// calls that are under way end as they do.
    pub fn set(&self, tenant: &TenantId, terms: Option<Terms>) {
        let mut state = self.inner.lock();
        let terms = match terms {
            Some(terms) => {
                let terms = Arc::new(terms);
                state.own.insert(tenant.clone(), Arc::clone(&terms));
                terms
            }
            None => {
                state.own.remove(tenant);
                Arc::clone(&state.standard)
            }
        };
        let account = state.accounts.get(tenant).and_then(Weak::upgrade);
        if let Some(account) = &account {
            account.set_terms(terms);
        }
        drop(state);
        drop(account);
    }

    /// What the tenant may have.
    #[must_use]
    pub fn terms(&self, tenant: &TenantId) -> Arc<Terms> {
        let state = self.inner.lock();
        Arc::clone(state.own.get(tenant).unwrap_or(&state.standard))
    }

    /// How the tenant stands.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn standing(&self, tenant: &TenantId) -> Result<Standing, RuntimeError> {
        self.account(tenant).standing().await.map_err(failed)
    }

    /// How many bytes of the journal the tenant's sessions take ([`Journal::recorded_bytes`](conjure_journal::Journal::recorded_bytes)).
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn recorded_bytes(&self, tenant: &TenantId) -> Result<u64, RuntimeError> {
        self.inner.journal.call(|journal| journal.recorded_bytes(tenant)).await.map_err(failed)
    }

    /// Submits to the journal again what tenants owe for calls that were broken off and it has surely not carried out. To be called now
    /// and then: a tenant's next call does it, too, if there is one.
    pub fn settle(&self) {
        let owing: Vec<_> = self.inner.lock().owing.values().cloned().collect();
        for account in owing {
            if account.settles() {
                account.let_go();
            }
        }
    }

    /// The tenant has no sessions any more: what is known of it here is forgotten, but for what it may have.
    pub fn forget(&self, tenant: &TenantId) {
        let mut state = self.inner.lock();
        state.accounts.remove(tenant);
        let owing = state.owing.remove(tenant);
        drop(state);
        if let Some(account) = owing {
            account.forget_debts();
        }
    }

    pub(crate) fn account(&self, tenant: &TenantId) -> Arc<Account> {
        let mut state = self.inner.lock();
        if let Some(known) = state.accounts.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        let terms = Arc::clone(state.own.get(tenant).unwrap_or(&state.standard));
        let (journal, clock) = (self.inner.journal.clone(), Arc::clone(&self.inner.clock));
        let entry = Entry { tenancy: Arc::downgrade(&self.inner), tenant: tenant.clone() };
        let account = Arc::new(Account::new(entry, terms, journal, clock));
        state.accounts.insert(tenant.clone(), Arc::downgrade(&account));
        account
    }

    /// The right to record one more session of the tenant. Within this process sessions are recorded one after the other where
    /// they are counted; each further process may record one more at the same moment.
    pub(crate) async fn record_one(&self, tenant: &TenantId) -> Result<Option<Recording>, RuntimeError> {
        let limit = self.terms(tenant).recorded_sessions;
        if limit == u64::MAX {
            return Ok(None);
        }
        let account = self.account(tenant);
        let turn = Arc::clone(account.recording()).lock_owned().await;
        let count = self.inner.journal.call(|journal| journal.session_count(tenant)).await.map_err(failed)?;
        if count >= limit {
            let current = count.saturating_add(1);
            let exceeded = QuotaExceeded::new(tenant.clone(), Quota::RecordedSessions, limit, current);
            return Err(SessionError::Quota(exceeded).into());
        }
        Ok(Some(Recording { _turn: turn, _account: account }))
    }
}

fn failed(error: CallFailure) -> RuntimeError {
    match error {
        CallFailure::Journal(error) => RuntimeError::Journal(error),
        CallFailure::Waited(waited) => RuntimeError::JournalAway { reason: waited.to_string() },
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    pub(super) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The account is there, whoever else lets go of it.
    pub(super) fn keep(&self, account: &Arc<Account>) {
        let Some(tenancy) = self.tenancy.upgrade() else { return };
        let before = tenancy.lock().owing.insert(self.tenant.clone(), Arc::clone(account));
        drop(before);
    }

    /// The account may go when nobody has it, unless it owes something by now.
    pub(super) fn let_go(&self) {
        let Some(tenancy) = self.tenancy.upgrade() else { return };
        let mut state = tenancy.lock();
        let has_paid = state.owing.get(&self.tenant).is_some_and(|account| account.settles());
        let account = if has_paid { state.owing.remove(&self.tenant) } else { None };
        drop(state);
        drop(account);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(tenancy) = self.tenancy.upgrade() else { return };
        let mut state = tenancy.lock();
        // Another account may have taken its place.
        if state.accounts.get(&self.tenant).is_some_and(|account| account.strong_count() == 0) {
            state.accounts.remove(&self.tenant);
        }
    }
}

impl fmt::Debug for Tenancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenancy").finish_non_exhaustive()
    }
}
