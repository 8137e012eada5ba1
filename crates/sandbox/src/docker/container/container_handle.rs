//! [`ContainerHandle`]: an RAII handle of a container. It reserves the name before the creation, so no container
//! outlives its owner.

use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerCreateBody;

use super::container_tracker::ContainerTracker;
use crate::docker::pending_removal::PendingRemoval;
use crate::error::{SandboxError, SandboxErrorKind};

/// The pause before the second attempt of [`ContainerHandle::remove_retrying`]; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 5;

/// A reserved container name, and the container of that name once it is created. Dropping it removes the container.
#[derive(Debug)]
pub(crate) struct ContainerHandle {
    tracker: Arc<ContainerTracker>,
    /// `None` when it is being dropped.
    pending: Option<PendingRemoval>,
}

impl ContainerHandle {
    /// Reserves a name for a container that is created later.
    pub(crate) fn reserve(tracker: &Arc<ContainerTracker>) -> Self {
        let pending = PendingRemoval::new(Arc::clone(tracker), tracker.reserve_name());
        Self { tracker: Arc::clone(tracker), pending: Some(pending) }
    }

    pub(crate) const fn tracker(&self) -> &Arc<ContainerTracker> {
        &self.tracker
    }

    pub(crate) fn name(&self) -> &str {
        self.pending.as_ref().map_or("", |pending| pending.name())
    }

    /// Creates the container. Returns the engine's warnings.
    pub(crate) async fn create(&mut self, body: ContainerCreateBody) -> Result<Vec<String>, SandboxError> {
        match &mut self.pending {
            Some(pending) => pending.create(body).await,
            None => Ok(Vec::new()),
        }
    }

    /// As [`ContainerHandle::remove`], with retries for some seconds: a busy engine may refuse a removal that it accepts
    /// later.
    pub(crate) async fn remove_retrying(&mut self) -> Result<(), SandboxError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self.remove().await {
                Err(error) if error.kind() != SandboxErrorKind::EngineUnavailable => {
                    tracing::debug!(%error, container = self.name(), "a container could not be removed yet");
                }
                end => return end,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.remove().await
    }

    /// Removes the container and waits for that. A second call does nothing.
    pub(crate) async fn remove(&mut self) -> Result<(), SandboxError> {
        match &mut self.pending {
            Some(pending) => pending.remove().await,
            None => Ok(()),
        }
    }
}

impl Drop for ContainerHandle {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take().filter(|pending| !pending.is_done()) else { return };
        // A runtime that is shutting down drops the task, and without a runtime the task is dropped at once. Then
        // `PendingRemoval::drop` asks the engine without a runtime.
        self.tracker.run(pending.remove_with_retries());
    }
}
