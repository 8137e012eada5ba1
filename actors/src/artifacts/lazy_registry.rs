//! Starts a session's artifact registry on the first request, below the session's actor.
//!
//! State: the address of the running registry. It ends with the session's actor.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Deadline, SystemClock, with_deadline};

use super::actor::{ArtifactRegistryActor, RegistryDeps};
use super::request::ArtifactRequest;
use crate::session::SessionError;
use crate::supervision::{Address, ChildId, ChildScope, Restart, WorkerSpec};

/// The registry stops after this time without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many requests may wait for the registry.
const QUEUE_CAPACITY: usize = 64;

/// Starts the registry on demand. Clones share it.
#[derive(Clone)]
pub(crate) struct LazyRegistry {
    child_scope: ChildScope,
    /// The caller that starts the registry holds this lock.
    address: Arc<tokio::sync::Mutex<Option<Address<ArtifactRequest>>>>,
}

impl LazyRegistry {
    /// A registry below this incarnation of a session.
    pub(crate) fn new(child_scope: ChildScope) -> Self {
        Self { child_scope, address: Arc::default() }
    }

    /// Returns the address of the running registry. Starts the registry if it does not run. If the registry fails, its waiting
    /// requests are lost, but nothing recorded is. The next request starts it again.
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
            // Waits until nothing is left of a registry that is stopping.
            if let Some(last) = address.monitor() {
                with_deadline(&SystemClock, deadline, last).await?;
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
