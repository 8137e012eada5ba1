//! Fetches under way, shared by everybody of a tenant who wants the same.
//!
//! A fetch goes on for as long as one of those who wait for it does, and is dropped with the last of them; nobody's limits are
//! another's. It owns nothing but a note of what is under way, which goes with it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_store::{StoreError, StoreErrorKind};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use super::Fetched;
use super::cache::Key;
use crate::error::ArtifactError;

type Outcome = Result<Fetched, Arc<ArtifactError>>;
type Flight = BoxFuture<'static, Outcome>;

/// What is under way.
#[derive(Default)]
pub(crate) struct Flights {
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    under_way: HashMap<Key, (u64, WeakShared<Flight>)>,
    next: u64,
}

impl Flights {
    /// Waits for the fetch of `key` that is under way, or for the one that `start` makes.
    pub(crate) async fn join<F>(
        self: Arc<Self>,
        key: Key,
        start: impl FnOnce() -> F,
    ) -> Result<Fetched, ArtifactError>
    where
        F: Future<Output = Result<Fetched, ArtifactError>> + Send + 'static,
    {
        let flight = self.note(key, start);
        flight.await.map_err(|error| Arc::try_unwrap(error).unwrap_or_else(|error| again(&error)))
    }

    fn note<F>(self: Arc<Self>, key: Key, start: impl FnOnce() -> F) -> Shared<Flight>
    where
        F: Future<Output = Result<Fetched, ArtifactError>> + Send + 'static,
    {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = notes.under_way.get(&key).and_then(|(_, flight)| flight.upgrade()) {
            return flight;
        }
        notes.next += 1;
        let (id, fetch) = (notes.next, start());
        let landing = Landing { flights: Arc::clone(&self), key: key.clone(), id };
        let flight: Flight = Box::pin(async move {
            let _when_it_ends = landing;
            fetch.await.map_err(Arc::new)
        });
        let flight = flight.shared();
        if let Some(weak) = flight.downgrade() {
            notes.under_way.insert(key, (id, weak));
        }
        flight
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").finish_non_exhaustive()
    }
}

/// Takes the note of a fetch away, however it ended.
struct Landing {
    flights: Arc<Flights>,
    key: Key,
    id: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut notes = self.flights.notes.lock().unwrap_or_else(PoisonError::into_inner);
        // Its place may be taken: who came when nobody waited any more has begun anew.
        if notes.under_way.get(&self.key).is_some_and(|(id, _)| *id == self.id) {
            notes.under_way.remove(&self.key);
        }
    }
}

/// The same error for one more of those who waited.
fn again(error: &ArtifactError) -> ArtifactError {
    match error {
        ArtifactError::InvalidUri { uri, reason } => {
            ArtifactError::InvalidUri { uri: uri.clone(), reason: reason.clone() }
        }
        ArtifactError::SchemeNotAllowed { scheme, allowed } => {
            ArtifactError::SchemeNotAllowed { scheme: scheme.clone(), allowed: allowed.clone() }
        }
        ArtifactError::HostBlocked { host } => ArtifactError::HostBlocked { host: host.clone() },
        ArtifactError::PrivateAddress { host } => ArtifactError::PrivateAddress { host: host.clone() },
        ArtifactError::FetchDisabled => ArtifactError::FetchDisabled,
        ArtifactError::FetchFailed { url, reason, retry } => {
            ArtifactError::FetchFailed { url: url.clone(), reason: reason.clone(), retry: *retry }
        }
        ArtifactError::TooLarge { what, limit } => {
            ArtifactError::TooLarge { what: what.clone(), limit: *limit }
        }
        ArtifactError::TimedOut { what, waited } => {
            ArtifactError::TimedOut { what: what.clone(), waited: *waited }
        }
        ArtifactError::Panicked(said) => ArtifactError::Panicked(said.clone()),
        ArtifactError::Store(error) => ArtifactError::Store(store_error(error)),
        // A fetch ends by itself in no other way.
        _ => ArtifactError::Cancelled,
    }
}

fn store_error(error: &StoreError) -> StoreError {
    let (doing, path) = ("write", PathBuf::from("the content"));
    match error.kind() {
        StoreErrorKind::NoSpace => StoreError::NoSpace { doing, path },
        StoreErrorKind::ReadOnly => StoreError::ReadOnly { doing, path },
        _ => StoreError::Io { doing, path, source: io::Error::other(error.to_string()) },
    }
}

#[cfg(test)]
mod tests;
