//! A map with at most one open value for each tenant. A value stays open while a user holds it.
//!
//! Opening or removing a tenant's value locks the tenant's entry. Other tenants are not delayed.
//!
//! State: the entries in use, in memory. An entry refers to its value weakly, and is removed when the value is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use conjure_base::{TenantId, lock};

/// The open value of each tenant.
#[derive(Debug)]
pub(crate) struct TenantMap<T> {
    known: Arc<Entries<T>>,
}

type Entries<T> = Mutex<BTreeMap<TenantId, Arc<Mutex<Weak<T>>>>>;

/// A value in the map holds this. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct EntryGuard<T> {
    known: Weak<Entries<T>>,
    tenant: TenantId,
}

impl<T> TenantMap<T> {
    /// Calls `work` with the entry of this tenant, under the entry's lock. Blocks.
    pub(crate) fn with_exclusive<R>(&self, tenant: &TenantId, work: impl FnOnce(&mut Weak<T>) -> R) -> R {
        // Dropped after the entry's lock.
        let _lease = self.entry_guard(tenant);
        let slot = Arc::clone(lock(&self.known).entry(tenant.clone()).or_default());
        let mut open = lock(&slot);
        work(&mut open)
    }

    /// The guard for a value that is put into the entry of this tenant.
    pub(crate) fn entry_guard(&self, tenant: &TenantId) -> EntryGuard<T> {
        EntryGuard { known: Arc::downgrade(&self.known), tenant: tenant.clone() }
    }
}

impl<T> Default for TenantMap<T> {
    fn default() -> Self {
        Self { known: Arc::default() }
    }
}

impl<T> Drop for EntryGuard<T> {
    fn drop(&mut self) {
        let Some(known) = self.known.upgrade() else { return };
        let mut known = lock(&known);
        // Another thread may hold the entry. It then stays in the map.
        let slot = known.get_mut(&self.tenant).and_then(Arc::get_mut);
        let open = slot.map(|slot| slot.get_mut().unwrap_or_else(PoisonError::into_inner));
        if open.is_some_and(|open| open.strong_count() == 0) {
            known.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Open {
        living: Arc<AtomicUsize>,
        _lease: EntryGuard<Self>,
    }

    impl Drop for Open {
        fn drop(&mut self) {
            self.living.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn open(slots: &TenantMap<Open>, tenant: &TenantId, living: &Arc<AtomicUsize>) -> Arc<Open> {
        slots.with_exclusive(tenant, |slot| {
            slot.upgrade().unwrap_or_else(|| {
                assert_eq!(living.fetch_add(1, Ordering::SeqCst), 0, "two are open at a time");
                let made = Arc::new(Open { living: Arc::clone(living), _lease: slots.entry_guard(tenant) });
                *slot = Arc::downgrade(&made);
                made
            })
        })
    }

    #[test]
    fn a_slot_goes_with_the_last_who_has_what_is_in_it() {
        let (slots, tenant, living) = (TenantMap::default(), TenantId::new("acme").unwrap(), Arc::default());
        let one = open(&slots, &tenant, &living);
        let same = open(&slots, &tenant, &living);
        assert!(Arc::ptr_eq(&one, &same));
        drop(one);
        assert_eq!(lock(&slots.known).len(), 1);
        drop(same);
        assert_eq!((lock(&slots.known).len(), living.load(Ordering::SeqCst)), (0, 0));
        // A look leaves no entry either.
        assert!(slots.with_exclusive(&tenant, |slot| slot.upgrade().is_none()));
        assert!(lock(&slots.known).is_empty());
    }

    #[test]
    fn what_is_forgotten_while_somebody_has_it_does_not_take_its_successor_along() {
        let (slots, tenant, living) = (TenantMap::default(), TenantId::new("acme").unwrap(), Arc::default());
        let old = open(&slots, &tenant, &living);
        slots.with_exclusive(&tenant, |slot| *slot = Weak::new());
        let new = open(&slots, &tenant, &Arc::default());
        drop(old);
        assert!(
            slots.with_exclusive(&tenant, |slot| slot.upgrade().is_some_and(|open| Arc::ptr_eq(&open, &new)))
        );
    }

    #[test]
    fn whoever_comes_while_it_goes_finds_it_whole_or_opens_it_anew() {
        let (slots, tenant) = (TenantMap::default(), TenantId::new("acme").unwrap());
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..2_000 {
                        // Each must be the one that all others find as long as it exists.
                        let mine = open(&slots, &tenant, &Arc::default());
                        let found = slots.with_exclusive(&tenant, |slot| slot.upgrade());
                        assert!(found.is_some_and(|found| Arc::ptr_eq(&found, &mine)));
                    }
                });
            }
        });
        assert!(lock(&slots.known).is_empty());
    }
}
