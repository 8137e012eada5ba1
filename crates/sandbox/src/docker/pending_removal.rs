//! [`PendingRemoval`]: creates a container, and ensures its removal. The removal is awaited, or runs in the
//! background or in `Drop`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use conjure_base::{Clock as _, SystemClock};

use crate::docker::container::container_tracker::ContainerTracker;
use crate::docker::engine::drop_budget::RemovalRequested;
use crate::docker::engine::engine_client::{CreateError, RemoveOutcome};
use crate::docker::engine::error_map::Effect;
use crate::error::{SandboxError, SandboxErrorKind};

/// The pause between two requests without a runtime, while the engine is creating the container.
const DROP_PAUSE: Duration = Duration::from_millis(50);

/// A request that an engine answers at once unless it hangs.
const PING: &str = "GET /_ping";

/// The status for a container that does not exist.
const ABSENT: u16 = 404;

/// The status while another operation on the container is under way.
const CONFLICT: u16 = 409;

/// Longer than any wait here: a deadline this far away serves to measure elapsed time.
const LONG: Duration = Duration::from_secs(3600);

/// The pause before the second attempt. Each further pause is twice as long, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 40;

/// A container name. Its container must be removed, now or when this is dropped.
#[derive(Debug)]
pub(super) struct PendingRemoval {
    tracker: Arc<ContainerTracker>,
    name: String,
    state: CreateState,
}

/// What is known about the creation of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreateState {
    /// The engine has answered. So if it has no container of this name now, none will appear.
    Known,
    /// The creation was requested, and the engine has not answered yet. The container may still appear.
    Requested,
    /// The creation was requested, and the engine did not answer in time. The container may still appear.
    Unconfirmed,
    /// It was removed, or its removal is left to the next sweep.
    Removed,
}

impl PendingRemoval {
    pub(super) const fn new(tracker: Arc<ContainerTracker>, name: String) -> Self {
        Self { tracker, name, state: CreateState::Known }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether nothing is left to remove.
    pub(super) fn is_done(&self) -> bool {
        self.state == CreateState::Removed
    }

    /// Creates the container. Returns the engine's warnings.
    pub(super) async fn create(&mut self, body: ContainerCreateBody) -> Result<Vec<String>, SandboxError> {
        // This state stays until the engine answers, also when the caller drops the future.
        self.state = CreateState::Requested;
        let created = self.tracker.engine.create(&self.name, body).await;
        self.state = match &created {
            Err(CreateError { effect: Effect::Unknown, .. }) => CreateState::Unconfirmed,
            Ok(_) | Err(CreateError { effect: Effect::None, .. }) => CreateState::Known,
        };
        created.map_err(|failure| failure.error)
    }

    /// Removes the container and waits for that.
    pub(super) async fn remove(&mut self) -> Result<(), SandboxError> {
        if self.state == CreateState::Removed {
            return Ok(());
        }
        let engine = &self.tracker.engine;
        let removed = match self.state {
            CreateState::Requested | CreateState::Unconfirmed => engine.remove_when_shown(&self.name).await?,
            CreateState::Known | CreateState::Removed => engine.remove(&self.name).await?,
        };
        self.tracker.budget.restore();
        match (removed, self.state) {
            (RemoveOutcome::NotThere, CreateState::Requested | CreateState::Unconfirmed) => {
                let message = format!("the engine has not made `{}` yet, which it was asked for", self.name);
                Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
            }
            _ => {
                self.release();
                Ok(())
            }
        }
    }

    /// Removes the container with many retries: the engine may be restarting, or slow in creating it.
    pub(super) async fn remove_with_retries(mut self) {
        let mut pause = FIRST_PAUSE;
        for _ in 0..ATTEMPTS {
            let Err(error) = self.remove().await else { return };
            tracing::debug!(%error, container = self.name, "a container could not be removed yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Podman does not list a container whose creation failed half way, but it can remove it by name.
        let _ = self.tracker.engine.remove(&self.name).await;
        tracing::warn!(container = self.name, "a container was not removed; the next sweep removes it");
        self.leave_to_sweep();
    }

    /// Asks the engine to remove the container, without a runtime. Returns the HTTP status.
    fn remove_blocking(&self, budget: Duration) -> io::Result<u16> {
        let address = self.tracker.engine.address();
        // For the reason that `EngineClient::remove_when_shown` describes.
        if matches!(self.state, CreateState::Requested | CreateState::Unconfirmed) {
            let shown = address.ask_blocking(&format!("GET /containers/{}/json", self.name), budget)?;
            if shown == ABSENT {
                return Ok(ABSENT);
            }
        }
        address.ask_blocking(&format!("DELETE /containers/{}?force=true&v=true", self.name), budget)
    }

    /// Leaves the container to the next sweep.
    fn leave_to_sweep(&mut self) {
        self.release();
        self.tracker.set_sweep_flag();
    }

    /// Releases the name.
    fn release(&mut self) {
        self.state = CreateState::Removed;
        self.tracker.names().remove(&self.name);
    }
}

impl Drop for PendingRemoval {
    /// Removes the container without a runtime, because the runtime may be shutting down. It repeats the request
    /// while the engine is still creating the container, fails, is busy with it, or is slow. It leaves the container
    /// to the next sweep when the engine hangs, or did not answer the creation in time.
    fn drop(&mut self) {
        if self.state == CreateState::Removed {
            return;
        }
        let budget = &self.tracker.budget;
        let mut asked = RemovalRequested::Never;
        while let Some(share) = budget.share(asked) {
            asked = RemovalRequested::Before;
            let begun = SystemClock.deadline(LONG);
            let waited = || LONG.saturating_sub(SystemClock.remaining(begun));
            match self.remove_blocking(share) {
                Ok(200..=299) => {
                    budget.restore();
                    return self.release();
                }
                Ok(ABSENT) if self.state == CreateState::Known => {
                    budget.restore();
                    return self.release();
                }
                Ok(ABSENT) if self.state == CreateState::Unconfirmed => return self.leave_to_sweep(),
                // The engine is creating it, or another removal is under way.
                Ok(ABSENT | CONFLICT | 500..) => {
                    std::thread::park_timeout(DROP_PAUSE);
                    budget.spend(waited());
                }
                Ok(status) => {
                    tracing::warn!(
                        status,
                        container = self.name,
                        "a container was not removed; the next sweep removes it"
                    );
                    return self.leave_to_sweep();
                }
                // A slow engine may have dropped the removal when this client disconnected.
                Err(ref error) if is_over_time(error) => {
                    match self.tracker.engine.address().ask_blocking(PING, share) {
                        Ok(_) => budget.spend_on_silence(waited()),
                        Err(_) => budget.lose(),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, container = self.name, "a container was not removed; the next sweep removes it");
                    return self.leave_to_sweep();
                }
            }
        }
        let message = "the engine takes too long, and a container is left to be swept";
        tracing::warn!(container = self.name, "{message}");
        self.leave_to_sweep();
    }
}

fn is_over_time(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests;
