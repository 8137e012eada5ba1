//! Limits how many fetches run at a time, in total and per tenant.
//!
//! A fetch holds a connection, a file and some memory for as long as its server takes, up to the timeout. The limit per tenant keeps
//! one tenant's slow servers from using every permit. The permits are in memory only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use conjure_base::{TenantId, lock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ArtifactError;

/// The maximum number of fetches at a time, all tenants together.
const MAX_FETCHES: usize = 256;
/// The maximum number of fetches at a time of one tenant.
const MAX_FETCHES_PER_TENANT: usize = 32;

#[derive(Debug)]
pub(crate) struct FetchLimiter {
    all: Arc<Semaphore>,
    /// One semaphore for each tenant that fetches or waits at the moment.
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

/// Permission for one fetch; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct FetchPermit {
    _total: OwnedSemaphorePermit,
    _tenant: OwnedSemaphorePermit,
}

impl Default for FetchLimiter {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_FETCHES)), tenants: Mutex::default() }
    }
}

impl FetchLimiter {
    /// Waits for a permit, first come first served.
    pub(crate) async fn acquire(&self, tenant: &TenantId) -> Result<FetchPermit, ArtifactError> {
        // The semaphores are never closed.
        let closed = |_| ArtifactError::Cancelled;
        // The tenant's own permit first: waiting for it must not block other tenants.
        let tenant = self.tenant_semaphore(tenant).acquire_owned().await.map_err(closed)?;
        let total = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(FetchPermit { _total: total, _tenant: tenant })
    }

    fn tenant_semaphore(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = lock(&self.tenants);
        if let Some(semaphore) = tenants.get(tenant).and_then(Weak::upgrade) {
            return semaphore;
        }
        tenants.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(MAX_FETCHES_PER_TENANT));
        tenants.insert(tenant.clone(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn tenant(number: usize) -> TenantId {
        TenantId::new(format!("tenant-{number}")).unwrap()
    }

    fn try_acquire(limiter: &FetchLimiter, number: usize) -> Option<FetchPermit> {
        limiter.acquire(&tenant(number)).now_or_never().map(|permit| permit.unwrap())
    }

    #[test]
    fn fetches_of_one_tenant_are_limited() {
        let limiter = FetchLimiter::default();
        let mut permits: Vec<FetchPermit> =
            (0..MAX_FETCHES_PER_TENANT).map(|_| try_acquire(&limiter, 1).unwrap()).collect();
        let first = tenant(1);
        let mut waiting = limiter.acquire(&first).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        assert!(try_acquire(&limiter, 2).is_some());
        permits.pop();
        assert!(waiting.now_or_never().is_some());
    }

    #[test]
    fn all_tenants_together_are_limited() {
        let limiter = FetchLimiter::default();
        let mut permits: Vec<FetchPermit> =
            (0..MAX_FETCHES).map(|at| try_acquire(&limiter, at / MAX_FETCHES_PER_TENANT).unwrap()).collect();
        assert!(try_acquire(&limiter, MAX_FETCHES).is_none());
        permits.pop();
        assert!(try_acquire(&limiter, MAX_FETCHES).is_some());
    }

    #[test]
    fn tenants_that_fetch_nothing_are_forgotten() {
        let limiter = FetchLimiter::default();
        for number in 0..100 {
            assert!(try_acquire(&limiter, number).is_some());
        }
        let permits = try_acquire(&limiter, 100);
        assert_eq!(limiter.tenants.lock().unwrap().len(), 1);
        drop(permits);
    }
}
