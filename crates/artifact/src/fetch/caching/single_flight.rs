//! Single-flight: concurrent fetches of the same key share one request.
//!
//! A fetch runs as long as at least one caller waits for it, and is dropped with the last caller. Each caller keeps its own deadline.
//! The table of running fetches is in memory.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use conjure_base::lock;
use conjure_store::{StoreError, StoreErrorKind};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use super::cache::CacheKey;
use crate::error::ArtifactError;
use crate::fetch::FetchedContent;

type Outcome = Result<FetchedContent, Arc<ArtifactError>>;
type Flight = BoxFuture<'static, Outcome>;

/// The running fetches.
#[derive(Default)]
pub(crate) struct SingleFlight {
    table: Mutex<FlightTable>,
}

#[derive(Default)]
struct FlightTable {
    in_flight: HashMap<CacheKey, (u64, WeakShared<Flight>)>,
    next_id: u64,
}

impl SingleFlight {
    /// Waits for the running fetch of `key`, or starts one with `start`.
    pub(crate) async fn join_or_start<F>(
        self: Arc<Self>,
        key: CacheKey,
        start: impl FnOnce() -> F,
    ) -> Result<FetchedContent, ArtifactError>
    where
        F: Future<Output = Result<FetchedContent, ArtifactError>> + Send + 'static,
    {
        let flight = self.register(key, start);
        flight.await.map_err(|error| Arc::try_unwrap(error).unwrap_or_else(|error| clone_error(&error)))
    }

    fn register<F>(self: Arc<Self>, key: CacheKey, start: impl FnOnce() -> F) -> Shared<Flight>
    where
        F: Future<Output = Result<FetchedContent, ArtifactError>> + Send + 'static,
    {
        let mut table = lock(&self.table);
        if let Some(flight) = table.in_flight.get(&key).and_then(|(_, flight)| flight.upgrade()) {
            return flight;
        }
        table.next_id += 1;
        let (id, fetch) = (table.next_id, start());
        let guard = FlightGuard { single_flight: Arc::clone(&self), key: key.clone(), id };
        let flight: Flight = Box::pin(async move {
            let _guard = guard;
            fetch.await.map_err(Arc::new)
        });
        let flight = flight.shared();
        if let Some(weak) = flight.downgrade() {
            table.in_flight.insert(key, (id, weak));
        }
        flight
    }
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").finish_non_exhaustive()
    }
}

/// Removes a fetch from the table when it ends for any reason.
struct FlightGuard {
    single_flight: Arc<SingleFlight>,
    key: CacheKey,
    id: u64,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let mut table = lock(&self.single_flight.table);
        // A later caller may have started another fetch of this key.
        if table.in_flight.get(&self.key).is_some_and(|(id, _)| *id == self.id) {
            table.in_flight.remove(&self.key);
        }
    }
}

/// Copies an error for another caller.
fn clone_error(error: &ArtifactError) -> ArtifactError {
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
        ArtifactError::Panicked(message) => ArtifactError::Panicked(message.clone()),
        ArtifactError::Store(error) => ArtifactError::Store(clone_store_error(error)),
        // A fetch returns no other errors.
        _ => ArtifactError::Cancelled,
    }
}

fn clone_store_error(error: &StoreError) -> StoreError {
    let (doing, path) = ("write", PathBuf::from("the content"));
    match error.kind() {
        StoreErrorKind::NoSpace => StoreError::NoSpace { operation: doing, path },
        StoreErrorKind::ReadOnly => StoreError::ReadOnly { operation: doing, path },
        _ => StoreError::Io { operation: doing, path, source: io::Error::other(error.to_string()) },
    }
}

#[cfg(test)]
mod tests;
