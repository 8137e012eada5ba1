//! Where the registry of a session's artifacts is: below the session's actor, started by the first request.
//!
//! State: the address of the one that runs. It goes with the session's actor.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};

use super::actor::{ArtifactRegistryActor, RegistryDeps};
use super::request::ArtifactRequest;
use crate::session::SessionError;
use crate::supervision::{Address, ChildId, ChildScope, Restart, WorkerSpec};

/// After so long without a request it goes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many requests may wait for it.
const QUEUE_CAPACITY: usize = 64;

/// Clones are the same place.
#[derive(Clone)]
pub(crate) struct LazyRegistry {
    child_scope: ChildScope,
    /// Whoever starts one has this.
    address: Arc<tokio::sync::Mutex<Option<Address<ArtifactRequest>>>>,
}

impl LazyRegistry {
    /// Below this incarnation of a session.
    pub(crate) fn new(child_scope: ChildScope) -> Self {
        Self { child_scope, address: Arc::default() }
    }

    /// The registry, started where none runs. One that failed is started anew by the next request: requests that it had are lost, and
    /// nothing that was recorded.
    pub(crate) async fn get_or_start(
        &self,
        deps: &RegistryDeps,
        deadline: Deadline,
    ) -> Result<Address<ArtifactRequest>, SessionError> {
        let mut current = self.address.lock().await;
        if let Some(address) = &*current {
            if address.is_running() {
                return Ok(address.clone());
            }
            // Nothing is left of one that is about to be gone.
            if let Some(last) = address.monitor() {
                tokio::select! {
                    biased;
                    _ = last => {}
                    () = SystemClock.sleep_until(deadline) => return Err(SessionError::DeadlinePassed),
                }
            }
        }
        let deps = deps.clone();
        let start = move |_| {
            let deps = deps.clone();
            async move { Ok(ArtifactRegistryActor::new(deps)) }
        };
        let id = ChildId::new("artifacts").map_err(|error| SessionError::from_start_error(&error.into()))?;
        let (spec, address) = WorkerSpec::new(id, start)
            .restart(Restart::TEMPORARY)
            .passivate_after(IDLE_TIMEOUT)
            .queue(QUEUE_CAPACITY)
            .build();
        *current = Some(address.clone());
        match self.child_scope.start(Arc::new(spec), deadline).await {
            Ok(()) => Ok(address),
            Err(error) => Err(SessionError::from_start_error(&error)),
        }
    }
}

impl fmt::Debug for LazyRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryPlace").finish_non_exhaustive()
    }
}
