//! A lock for each tenant, which exists while a caller holds it or waits for it.
//!
//! State: the locks in use, in memory. A tenant whose supervisor is not being started or stopped has none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use conjure_base::{Clock as _, Deadline, SystemClock, TenantId, lock};
use tokio::sync::OwnedMutexGuard;

/// One lock for each tenant.
#[derive(Debug, Default)]
pub(super) struct TenantLocks {
    locked: Mutex<HashMap<TenantId, Weak<tokio::sync::Mutex<()>>>>,
}

impl TenantLocks {
    /// The tenant's lock; `None` if it was not acquired before the deadline.
    pub(super) async fn lock(&self, tenant: &TenantId, deadline: Deadline) -> Option<OwnedMutexGuard<()>> {
        let lock = self.get_or_create(tenant);
        tokio::select! {
            biased;
            locked = lock.lock_owned() => Some(locked),
            () = SystemClock.sleep_until(deadline) => None,
        }
    }

    fn get_or_create(&self, tenant: &TenantId) -> Arc<tokio::sync::Mutex<()>> {
        // Each change leaves the map consistent, so it can be used after a panic.
        let mut locked = lock(&self.locked);
        if let Some(lock) = locked.get(tenant).and_then(Weak::upgrade) {
            return lock;
        }
        locked.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locked.insert(tenant.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tenant(number: usize) -> TenantId {
        TenantId::new(format!("t{number}")).unwrap()
    }

    fn now() -> Deadline {
        SystemClock.deadline(Duration::ZERO)
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_waits_for_its_own_only_and_no_longer_than_it_wants_to() {
        let locks = TenantLocks::default();
        let held = locks.lock(&tenant(0), Deadline::NEVER).await.unwrap();
        assert!(locks.lock(&tenant(0), SystemClock.deadline(Duration::from_secs(60))).await.is_none());
        for other in 1..100 {
            // Had without waiting, or not at all.
            assert!(locks.lock(&tenant(other), now()).await.is_some());
        }
        let own = tenant(0);
        let (next, ()) = tokio::join!(locks.lock(&own, Deadline::NEVER), async { drop(held) });
        assert!(next.is_some() && locks.lock(&own, now()).await.is_none());
    }

    #[tokio::test]
    async fn what_nobody_uses_is_forgotten() {
        let locks = TenantLocks::default();
        for number in 0..100 {
            locks.lock(&tenant(number), Deadline::NEVER).await.unwrap();
        }
        assert_eq!(locks.locked.lock().unwrap().len(), 1);
    }
}
