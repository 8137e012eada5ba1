//! What is open of tenants: of each at most one at a time, for as long as somebody has it.
//!
//! Whoever opens what is a tenant's, or removes it, has the tenant's slot alone meanwhile; nobody waits for another tenant's. State: in
//! memory, the slots that are in use. A slot holds weakly what is open, and goes with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use conjure_base::TenantId;

/// What is open of tenants.
#[derive(Debug)]
pub(super) struct Slots<T> {
    known: Arc<Known<T>>,
}

type Known<T> = Mutex<BTreeMap<TenantId, Arc<Mutex<Weak<T>>>>>;

/// What is put into a slot has this: with it goes the slot.
#[derive(Debug)]
pub(super) struct Lease<T> {
    known: Weak<Known<T>>,
    tenant: TenantId,
}

impl<T> Slots<T> {
    /// Works with what is open of this tenant, while nobody else does. Blocks.
    pub(super) fn alone<R>(&self, tenant: &TenantId, work: impl FnOnce(&mut Weak<T>) -> R) -> R {
        // Let go of behind the slot.
        let _lease = self.lease(tenant);
        let slot = Arc::clone(lock(&self.known).entry(tenant.clone()).or_default());
        let mut open = lock(&slot);
        work(&mut open)
    }

    /// For what is put into the slot of this tenant.
    pub(super) fn lease(&self, tenant: &TenantId) -> Lease<T> {
        Lease { known: Arc::downgrade(&self.known), tenant: tenant.clone() }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { known: Arc::default() }
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        let Some(known) = self.known.upgrade() else { return };
        let mut known = lock(&known);
        // Others have come to it while all of them were locked, or not at all.
        let slot = known.get_mut(&self.tenant).and_then(Arc::get_mut);
        let open = slot.map(|slot| slot.get_mut().unwrap_or_else(PoisonError::into_inner));
        if open.is_some_and(|open| open.strong_count() == 0) {
            known.remove(&self.tenant);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Open {
        living: Arc<AtomicUsize>,
        _lease: Lease<Self>,
    }

    impl Drop for Open {
        fn drop(&mut self) {
            self.living.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn open(slots: &Slots<Open>, tenant: &TenantId, living: &Arc<AtomicUsize>) -> Arc<Open> {
        slots.alone(tenant, |slot| {
            slot.upgrade().unwrap_or_else(|| {
                assert_eq!(living.fetch_add(1, Ordering::SeqCst), 0, "two are open at a time");
                let made = Arc::new(Open { living: Arc::clone(living), _lease: slots.lease(tenant) });
                *slot = Arc::downgrade(&made);
                made
            })
        })
    }

    #[test]
    fn a_slot_goes_with_the_last_who_has_what_is_in_it() {
        let (slots, tenant, living) = (Slots::default(), TenantId::new("acme").unwrap(), Arc::default());
        let one = open(&slots, &tenant, &living);
        let same = open(&slots, &tenant, &living);
        assert!(Arc::ptr_eq(&one, &same));
        drop(one);
        assert_eq!(lock(&slots.known).len(), 1);
        drop(same);
        assert_eq!((lock(&slots.known).len(), living.load(Ordering::SeqCst)), (0, 0));
        // Nor does a look leave one.
        assert!(slots.alone(&tenant, |slot| slot.upgrade().is_none()));
        assert!(lock(&slots.known).is_empty());
    }

    #[test]
    fn what_is_forgotten_while_somebody_has_it_does_not_take_its_successor_along() {
        let (slots, tenant, living) = (Slots::default(), TenantId::new("acme").unwrap(), Arc::default());
        let old = open(&slots, &tenant, &living);
        slots.alone(&tenant, |slot| *slot = Weak::new());
        let new = open(&slots, &tenant, &Arc::default());
        drop(old);
        assert!(slots.alone(&tenant, |slot| slot.upgrade().is_some_and(|open| Arc::ptr_eq(&open, &new))));
    }

    #[test]
    fn whoever_comes_while_it_goes_finds_it_whole_or_opens_it_anew() {
        let (slots, tenant) = (Slots::default(), TenantId::new("acme").unwrap());
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..2_000 {
                        // Each must be the one that all others find for as long as it is there.
                        let mine = open(&slots, &tenant, &Arc::default());
                        let found = slots.alone(&tenant, |slot| slot.upgrade());
                        assert!(found.is_some_and(|found| Arc::ptr_eq(&found, &mine)));
                    }
                });
            }
        });
        assert!(lock(&slots.known).is_empty());
    }
}
