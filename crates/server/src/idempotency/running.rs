//! The keys whose first request this process is handling.
//!
//! State, in memory: the ids of their rows. After a crash it is empty, so a pending row then has an unknown outcome.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use conjure_base::{TenantId, lock};

type Key = (TenantId, String);

/// The keys whose first request this process is handling.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningKeys(Arc<Mutex<HashSet<Key>>>);

/// Keeps a key marked as running until it is dropped.
#[derive(Debug)]
pub(super) struct RunningKeyGuard {
    running: RunningKeys,
    key: Key,
}

impl RunningKeys {
    /// Marks a key as running. `None` if it already is.
    pub(super) fn begin(&self, tenant: &TenantId, id: &str) -> Option<RunningKeyGuard> {
        let key = (tenant.clone(), id.to_owned());
        let is_new = lock(&self.0).insert(key.clone());
        is_new.then(|| RunningKeyGuard { running: self.clone(), key })
    }
}

impl Drop for RunningKeyGuard {
    fn drop(&mut self) {
        lock(&self.running.0).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_runs_once_at_a_time_for_each_tenant() {
        let (running, acme) = (RunningKeys::default(), TenantId::new("acme").unwrap());
        let guard = running.begin(&acme, "a").unwrap();
        assert!(running.begin(&acme, "a").is_none());
        assert!(running.begin(&acme, "b").is_some());
        assert!(running.begin(&TenantId::new("other").unwrap(), "a").is_some());
        drop(guard);
        assert!(running.begin(&acme, "a").is_some());
    }
}
