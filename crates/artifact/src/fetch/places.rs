//! How many fetches are under way at a time: of all tenants together, and of each.
//!
//! A fetch holds a connection, a file and some memory for as long as its server likes, up to its limit of time; so no tenant's slow
//! servers take every place. It owns the places, which a crash frees.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use conjure_base::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ArtifactError;

/// The most fetches at a time.
const OF_ALL: usize = 256;
/// The most of a tenant.
const OF_ONE: usize = 32;

#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    /// Those of the tenants that fetch or wait just now.
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_tenant: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(OF_ALL)), tenants: Mutex::default() }
    }
}

impl Places {
    /// Waits for a place, in the order of asking.
    pub(crate) async fn take(&self, tenant: &TenantId) -> Result<Place, ArtifactError> {
        // The places are never closed.
        let closed = |_| ArtifactError::Cancelled;
        // First the tenant's own: who waits for those takes none of the others'.
        let of_tenant = self.of(tenant).acquire_owned().await.map_err(closed)?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(Place { _of_all: of_all, _of_tenant: of_tenant })
    }

    fn of(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = tenants.get(tenant).and_then(Weak::upgrade) {
            return places;
        }
        tenants.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(OF_ONE));
        tenants.insert(tenant.clone(), Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn tenant(number: usize) -> TenantId {
        TenantId::new(format!("tenant-{number}")).unwrap()
    }

    fn taken(places: &Places, number: usize) -> Option<Place> {
        places.take(&tenant(number)).now_or_never().map(|place| place.unwrap())
    }

    #[test]
    fn a_tenant_takes_no_more_than_its_share() {
        let places = Places::default();
        let mut held: Vec<Place> = (0..OF_ONE).map(|_| taken(&places, 1).unwrap()).collect();
        let first = tenant(1);
        let mut waiting = places.take(&first).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        assert!(taken(&places, 2).is_some());
        held.pop();
        assert!(waiting.now_or_never().is_some());
    }

    #[test]
    fn all_together_take_no_more_than_there_are() {
        let places = Places::default();
        let mut held: Vec<Place> = (0..OF_ALL).map(|at| taken(&places, at / OF_ONE).unwrap()).collect();
        assert!(taken(&places, OF_ALL).is_none());
        held.pop();
        assert!(taken(&places, OF_ALL).is_some());
    }

    #[test]
    fn tenants_that_fetch_nothing_are_forgotten() {
        let places = Places::default();
        for number in 0..100 {
            assert!(taken(&places, number).is_some());
        }
        let held = taken(&places, 100);
        assert_eq!(places.tenants.lock().unwrap().len(), 1);
        drop(held);
    }
}
