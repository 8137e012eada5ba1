//! Where the registry of a session's artifacts is: below the session's actor, started by the first request.
//!
//! State: the address of the one that runs. It goes with the session's actor.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};

use super::actor::{ArtifactRegistryActor, Makings};
use super::request::ArtifactRequest;
use crate::session::SessionError;
use crate::supervision::{Address, ChildId, Ground, Restart, WorkerSpec};

/// After so long without a request it goes.
const IDLE: Duration = Duration::from_secs(60);

/// How many requests may wait for it.
const QUEUE: usize = 64;

/// Clones are the same place.
#[derive(Clone)]
pub(crate) struct RegistryPlace {
    ground: Ground,
    /// Whoever starts one has this.
    address: Arc<tokio::sync::Mutex<Option<Address<ArtifactRequest>>>>,
}

impl RegistryPlace {
    /// Below this incarnation of a session.
    pub(crate) fn vacant(ground: Ground) -> Self {
        Self { ground, address: Arc::default() }
    }

    /// The registry, started where none runs. One that failed is started anew by the next request: requests that it had are lost, and
    /// nothing that was recorded.
    pub(crate) async fn registry(
        &self,
        makings: &Makings,
        deadline: Deadline,
    ) -> Result<Address<ArtifactRequest>, SessionError> {
        let mut known = self.address.lock().await;
        if let Some(address) = &*known {
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
        let makings = makings.clone();
        let start = move |_| {
            let makings = makings.clone();
            async move { Ok(ArtifactRegistryActor::new(makings)) }
        };
        let id = ChildId::new("artifacts").map_err(|error| SessionError::of_start(&error.into()))?;
        let (spec, address) =
            WorkerSpec::new(id, start).restart(Restart::TEMPORARY).passivate_after(IDLE).queue(QUEUE).build();
        *known = Some(address.clone());
        match self.ground.start(Arc::new(spec), deadline).await {
            Ok(()) => Ok(address),
            Err(error) => Err(SessionError::of_start(&error)),
        }
    }
}

impl fmt::Debug for RegistryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryPlace").finish_non_exhaustive()
    }
}
