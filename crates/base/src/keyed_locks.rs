//! [`KeyedLocks`]: a lock for each key.
//!
//! State: the locks in use, in memory. A lock exists while a caller holds it or waits for it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::{Clock as _, Deadline, SystemClock, lock};

/// One lock for each key. Callers with different keys do not wait for each other.
#[derive(Debug)]
pub struct KeyedLocks<K> {
    locks: Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>,
}

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// Waits for the lock of this key. It is released when the guard is dropped.
    pub async fn lock(&self, key: K) -> OwnedMutexGuard<()> {
        self.get_or_create(key).lock_owned().await
    }

    /// Like [`KeyedLocks::lock`]. `None` if the lock was not acquired before the deadline.
    pub async fn lock_until(&self, key: K, deadline: Deadline) -> Option<OwnedMutexGuard<()>> {
        tokio::select! {
            biased;
            locked = self.lock(key) => Some(locked),
            () = SystemClock.sleep_until(deadline) => None,
        }
    }

    fn get_or_create(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        // Each change leaves the map consistent, so it can be used after a panic.
        let mut locks = lock(&self.locks);
        if let Some(lock) = locks.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(key, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Deadline {
        SystemClock.deadline(Duration::ZERO)
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_its_own_key_only_and_no_longer_than_it_wants_to() {
        let locks = KeyedLocks::default();
        let held = locks.lock(0).await;
        assert!(locks.lock_until(0, SystemClock.deadline(Duration::from_secs(60))).await.is_none());
        for other in 1..100 {
            // Had without waiting, or not at all.
            assert!(locks.lock_until(other, now()).await.is_some());
        }
        let (_next, ()) = tokio::join!(locks.lock(0), async { drop(held) });
        assert!(locks.lock_until(0, now()).await.is_none());
    }

    #[tokio::test]
    async fn what_nobody_uses_is_forgotten() {
        let locks = KeyedLocks::default();
        for number in 0..100 {
            locks.lock(number).await;
        }
        assert_eq!(locks.locks.lock().unwrap().len(), 1);
    }
}
