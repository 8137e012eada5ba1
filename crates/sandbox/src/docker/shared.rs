//! What the connectors of a host share: an engine, which is looked for once; the containers that they have there; the gate
//! through which containers are started.
//!
//! State: what was found, and what is held of it. All of it is gone with the process; the containers, the next host removes.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock, Timestamp};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::address::EngineAddress;
use super::engine::Engine;
use super::held::Keeper;
use super::labels::Host;
use super::sweep::{SweptContainers, sweep};
use crate::error::SandboxError;
use crate::guest_process::unavailable;
use crate::places::{KnownPlaces, Places};

/// A container engine, for all connectors of a host. Clones are the same.
///
/// It is looked for when the first container is asked for, and again when there was none. No more containers are started on
/// it at a time than there are processors, whichever connector asks: to start many at once takes all of them longer than one
/// after the other. Who must wait does so in order, for as long as the caller lets it; who gives up takes no place.
#[derive(Debug, Clone)]
pub struct ContainerEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    addresses: Vec<EngineAddress>,
    instance: String,
    gate: Arc<Semaphore>,
    keeper: OnceCell<Arc<Keeper>>,
    /// Whose locks can be looked at: the places of those who make containers on it.
    known: Mutex<Vec<KnownPlaces>>,
    /// When it was swept last.
    swept: Mutex<Option<Timestamp>>,
}

/// How long after a sweep the next container has it swept again: other hosts may have died since.
const SWEPT_EVERY: Duration = Duration::from_secs(5 * 60);

impl ContainerEngine {
    /// The first at these addresses that answers; without any, the first of the usual ones. Nothing is looked for yet.
    #[must_use]
    pub fn at(addresses: Vec<EngineAddress>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let random = || RandomState::new().build_hasher().finish();
        let inner = Inner {
            addresses,
            instance: format!("{:016x}{:016x}", random(), random()),
            gate: Arc::new(Semaphore::new(cores)),
            keeper: OnceCell::new(),
            known: Mutex::default(),
            swept: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Removes the containers that hosts left behind which are dead, in whatever state they are, and such of its own as could
    /// not be removed before. Those of hosts that live are left alone. A host that cannot be known, because it was in another pid
    /// namespace, is known by the lock in its data folder, if a connector on this engine has made a container with the same
    /// one, or is about to. Where a host lives on another machine, or may, its containers' lease decides.
    ///
    /// # Errors
    /// When the engine cannot be asked. What cannot be removed is in the result.
    pub async fn sweep(&self) -> Result<SweptContainers, SandboxError> {
        let keeper = self.found().await?;
        sweep(&keeper, self.host()?, self.known()).await
    }

    /// Learns of places: sweeps look at their locks from now on.
    pub(super) fn learn(&self, places: &Places) {
        let Some(places) = places.known() else { return };
        let mut known = self.inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| !other.are_gone() && !other.are_the_same(&places));
        known.push(places);
    }

    fn known(&self) -> Vec<KnownPlaces> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is held of it, for who makes a container: it is swept where that is due. Nobody waits for it.
    pub(super) async fn keeper(&self) -> Result<Arc<Keeper>, SandboxError> {
        let keeper = self.found().await?;
        if self.is_due(&keeper, SystemClock.timestamp()) {
            let (host, known, sweeper) = (self.host()?, self.known(), Arc::clone(&keeper));
            keeper.run(async move {
                match sweep(&sweeper, host, known).await {
                    Ok(swept) => {
                        tracing::debug!(?swept, "looked for containers of dead hosts");
                        for error in &swept.failures {
                            tracing::warn!(%error, "a container of a dead host cannot be removed");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to look for containers of dead hosts");
                        sweeper.must_be_swept();
                    }
                }
            });
        }
        Ok(keeper)
    }

    /// What is held of it, for who only looks.
    pub(super) async fn found(&self) -> Result<Arc<Keeper>, SandboxError> {
        let found = self.inner.keeper.get_or_try_init(|| async {
            let engine = Engine::find(&self.inner.addresses).await?;
            Ok(Keeper::new(engine, &self.inner.instance))
        });
        found.await.map(Arc::clone)
    }

    /// Whether it must be swept, which the caller then does: it never was, or not for long, or something was left to it.
    fn is_due(&self, keeper: &Keeper, now: Timestamp) -> bool {
        let mut swept = self.inner.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let since = swept.map(|then| Duration::from_millis(now.millis().saturating_sub(then.millis())));
        let is_due = keeper.takes_what_was_left() || since.is_none_or(|since| since >= SWEPT_EVERY);
        if is_due {
            *swept = Some(now);
        }
        is_due
    }

    /// This host, as its containers name it.
    pub(super) fn host(&self) -> Result<Host, SandboxError> {
        Host::own(&self.inner.instance).map_err(|error| unavailable("this process cannot be named", error))
    }

    /// Waits for one's turn to start a container. It lasts until what is yielded is dropped.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, SandboxError> {
        let permit = Arc::clone(&self.inner.gate).acquire_owned().await;
        permit.map_err(|error| unavailable("no container can be started", error))
    }
}
