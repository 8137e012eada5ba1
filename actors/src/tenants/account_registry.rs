//! [`AccountRegistry`]: which accounts exist, and the limits of their tenants.
//!
//! An account refers to its entry by an [`AccountRef`]. State: in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use conjure_base::{TenantId, lock};

use super::quota::TenantLimits;

/// All accounts of type `A`.
pub(super) struct AccountRegistry<A>(Mutex<AccountsState<A>>);

pub(super) struct AccountsState<A> {
    /// The limits of tenants that have none of their own.
    pub(super) default: Arc<TenantLimits>,
    pub(super) overrides: BTreeMap<TenantId, Arc<TenantLimits>>,
    pub(super) accounts: BTreeMap<TenantId, Weak<A>>,
    /// The accounts with charges that the journal has not acknowledged.
    pub(super) with_pending_charges: BTreeMap<TenantId, Arc<A>>,
}

/// A weak reference to the entry of an account.
pub(super) struct AccountRef<A> {
    registry: Weak<AccountRegistry<A>>,
    tenant: TenantId,
}

impl<A> AccountRegistry<A> {
    pub(super) const fn new(state: AccountsState<A>) -> Self {
        Self(Mutex::new(state))
    }

    /// Locks the state. A poisoned lock is safe, because each change leaves the state consistent.
    pub(super) fn lock(&self) -> MutexGuard<'_, AccountsState<A>> {
        lock(&self.0)
    }

    /// The reference for the account of this tenant.
    pub(super) fn account_ref(self: &Arc<Self>, tenant: TenantId) -> AccountRef<A> {
        AccountRef { registry: Arc::downgrade(self), tenant }
    }
}

impl<A> AccountRef<A> {
    pub(super) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Keeps the account alive while charges are pending.
    pub(super) fn hold(&self, account: &Arc<A>) {
        let Some(accounts) = self.registry.upgrade() else { return };
        let before = accounts.lock().with_pending_charges.insert(self.tenant.clone(), Arc::clone(account));
        drop(before);
    }

    /// Drops the registry's own reference to the account, unless charges are pending.
    pub(super) fn release_if_settled(&self, flush_pending: impl FnOnce(&A) -> bool) {
        let Some(accounts) = self.registry.upgrade() else { return };
        let mut state = accounts.lock();
        let has_paid =
            state.with_pending_charges.get(&self.tenant).is_some_and(|account| flush_pending(account));
        let account = if has_paid { state.with_pending_charges.remove(&self.tenant) } else { None };
        drop(state);
        drop(account);
    }
}

impl<A> Drop for AccountRef<A> {
    fn drop(&mut self) {
        let Some(accounts) = self.registry.upgrade() else { return };
        let mut state = accounts.lock();
        // A new account of the tenant may be registered already.
        if state.accounts.get(&self.tenant).is_some_and(|account| account.strong_count() == 0) {
            state.accounts.remove(&self.tenant);
        }
    }
}
