//! [`ContainerEngine`]: the engine that the connectors of a process share, with its containers and the permits to start
//! them.
//!
//! State: the engine that was found, and its container names. They are lost with the process; the next process
//! removes the containers.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock, Timestamp, lock};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::address::EngineAddress;
use super::engine_client::EngineClient;
use super::list_containers::ListedContainer;
use crate::docker::container::container_tracker::ContainerTracker;
use crate::docker::container::owner_labels::{MANAGED, OwnerIdentity, SweepDecision};

use crate::error::SandboxError;
use crate::guest_process::unavailable;
use crate::host_dirs::{SandboxDirs, SandboxDirsRef};

/// A container engine, for all connectors of a process. Clones share it.
///
/// The search for the engine starts when the first container is requested, and is repeated if there was none. All
/// connectors together start no more containers at a time than there are processors: starting many at once takes
/// longer for all of them. Waiting callers are served in order. A caller that drops its future leaves the queue.
#[derive(Debug, Clone)]
pub struct ContainerEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    addresses: Vec<EngineAddress>,
    instance: String,
    start_permits: Arc<Semaphore>,
    tracker: OnceCell<Arc<ContainerTracker>>,
    /// The sandbox directories of the connectors on this engine. A sweep can check their locks.
    known: Mutex<Vec<SandboxDirsRef>>,
    /// The time of the last sweep.
    swept: Mutex<Option<Timestamp>>,
}

/// The age of the last sweep at which the next container starts another: other processes may have died since.
const SWEPT_EVERY: Duration = Duration::from_secs(5 * 60);

impl ContainerEngine {
    /// Uses the first of these addresses that answers; without any, the first of the usual ones. Does not search for
    /// it yet.
    #[must_use]
    pub fn new(addresses: Vec<EngineAddress>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let random = || RandomState::new().build_hasher().finish();
        let inner = Inner {
            addresses,
            instance: format!("{:016x}{:016x}", random(), random()),
            start_permits: Arc::new(Semaphore::new(cores)),
            tracker: OnceCell::new(),
            known: Mutex::default(),
            swept: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Removes the containers of dead processes, in whatever state they are, and own ones whose removal had failed.
    /// Containers of living processes stay. A process in another pid namespace is known by the lock in its data
    /// directory, if a connector on this engine uses the same directory. For processes on another machine, the lease of
    /// the container decides.
    ///
    /// # Errors
    /// When the engine does not answer. The report lists containers that could not be removed.
    pub async fn sweep(&self) -> Result<ContainerSweepReport, SandboxError> {
        let tracker = self.find().await?;
        sweep_containers(&tracker, self.host()?, self.known()).await
    }

    /// Adds directories whose locks sweeps check from now on.
    pub(crate) fn add_sandbox_dirs(&self, dirs: &SandboxDirs) {
        let Some(dirs) = dirs.downgrade() else { return };
        let mut known = lock(&self.inner.known);
        known.retain(|other| !other.is_dropped() && !other.is_same(&dirs));
        known.push(dirs);
    }

    fn known(&self) -> Vec<SandboxDirsRef> {
        lock(&self.inner.known).clone()
    }

    /// Returns the tracker, for creating a container. Starts a sweep in the background when one is due.
    pub(crate) async fn tracker(&self) -> Result<Arc<ContainerTracker>, SandboxError> {
        let tracker = self.find().await?;
        if self.is_due(&tracker, SystemClock.timestamp()) {
            let (host, known, sweeper) = (self.host()?, self.known(), Arc::clone(&tracker));
            tracker.run(async move {
                match sweep_containers(&sweeper, host, known).await {
                    Ok(swept) => {
                        tracing::debug!(?swept, "searched containers of dead processes");
                        for error in &swept.failures {
                            tracing::warn!(%error, "a container of a dead process cannot be removed");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to search containers of dead processes");
                        sweeper.set_sweep_flag();
                    }
                }
            });
        }
        Ok(tracker)
    }

    /// Returns the tracker, without a sweep.
    pub(crate) async fn find(&self) -> Result<Arc<ContainerTracker>, SandboxError> {
        let found = self.inner.tracker.get_or_try_init(|| async {
            let engine = EngineClient::find(&self.inner.addresses).await?;
            Ok(ContainerTracker::new(engine, &self.inner.instance))
        });
        found.await.map(Arc::clone)
    }

    /// Whether a sweep is due: there was none, the last one is old, or a removal was left to it. If so, the caller
    /// must sweep.
    fn is_due(&self, tracker: &ContainerTracker, now: Timestamp) -> bool {
        let mut swept = lock(&self.inner.swept);
        let since = swept.map(|then| Duration::from_millis(now.millis().saturating_sub(then.millis())));
        let is_due = tracker.take_sweep_flag() || since.is_none_or(|since| since >= SWEPT_EVERY);
        if is_due {
            *swept = Some(now);
        }
        is_due
    }

    /// The identity of this process in the labels of its containers.
    pub(crate) fn host(&self) -> Result<OwnerIdentity, SandboxError> {
        OwnerIdentity::current(&self.inner.instance)
            .map_err(|error| unavailable("this process cannot be named", error))
    }

    /// Waits for a permit to start a container. The permit is released when it is dropped.
    pub(crate) async fn admit_start(&self) -> Result<OwnedSemaphorePermit, SandboxError> {
        let permit = Arc::clone(&self.inner.start_permits).acquire_owned().await;
        permit.map_err(|error| unavailable("no container can be started", error))
    }
}

/// The result of [`ContainerEngine::sweep`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ContainerSweepReport {
    /// The number of removed containers: those of dead processes, and own ones whose removal had failed before.
    pub removed: usize,
    /// The number of containers that stay: their processes are alive, or may be.
    pub alive: usize,
    /// The reasons why containers could not be removed.
    pub failures: Vec<SandboxError>,
}

/// Removes the containers whose process is dead, and own containers that have no handle.
async fn sweep_containers(
    tracker: &ContainerTracker,
    host: OwnerIdentity,
    known: Vec<SandboxDirsRef>,
) -> Result<ContainerSweepReport, SandboxError> {
    let now = SystemClock.timestamp().millis() / 1000;
    let all = tracker.engine.list_by_label(MANAGED).await?;
    // The decision reads lock files, which blocks.
    let decisions = tokio::task::spawn_blocking(move || {
        let decision = |found: ListedContainer| {
            let decision = host.sweep_decision(&found.name, &found.labels, &known, now);
            (found, decision)
        };
        all.into_iter().map(decision).collect::<Vec<_>>()
    });
    let decisions = decisions.await.map_err(|error| unavailable("containers cannot be inspected", error))?;
    let mut swept = ContainerSweepReport::default();
    for (found, decision) in decisions {
        let is_left = match decision {
            SweepDecision::Keep => false,
            SweepDecision::Own => !tracker.holds(&found.name),
            SweepDecision::Orphaned => true,
        };
        if !is_left {
            swept.alive += 1;
            continue;
        }
        match tracker.engine.remove(&found.id).await {
            Ok(_) => swept.removed += 1,
            Err(error) => swept.failures.push(error),
        }
    }
    Ok(swept)
}
