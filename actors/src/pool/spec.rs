//! What a pool is made of, and the handle of one.

use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use conjure_base::{Deadline, TenantId};
use conjure_sandbox::{SandboxError, SandboxErrorKind};
use futures_util::future::BoxFuture;

use super::actor::PoolActor;
use super::meter::{Event, Meter};
use super::shelf::Shelf;
use crate::admission::{Gate, Overloaded, Permit, Share, turn_before};
use crate::supervision::{Backoff, ChildId, ChildSpec, SpecError, WorkerSpec};

/// What is made before anybody needs it.
pub trait Spare: Send + 'static {
    /// Whether it has not ended, as far as anybody knows.
    fn is_live(&self) -> bool;

    /// Resolves when it has ended by itself, also while somebody has it.
    fn ended(&self) -> BoxFuture<'static, SandboxError>;

    /// Ends it, and returns when nothing of it is left. Bounds itself.
    fn retire(self) -> impl Future<Output = ()> + Send + 'static;
}

/// Makes the spares of one pool.
pub trait SpareSource: Send + Sync + fmt::Debug + 'static {
    /// What it makes.
    type Spare: Spare;

    /// Makes one, and returns when it is ready for whoever claims it. Dropping the future releases what was made so far.
    ///
    /// # Errors
    /// Why there is none; `Unsupported` where there never can be one. Nothing is left of it then.
    fn make(&self, deadline: Deadline) -> BoxFuture<'_, Result<Self::Spare, SandboxError>>;
}

/// How a pool is kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many spares are ready when nobody takes any. 0: none ever; all that is started still passes the gate.
    pub size: usize,
    /// When a spare that waits is too old, and replaced.
    pub max_age: Duration,
    /// What the gate of the starts is called, in messages and metrics: each pool of a process should have another.
    pub starts: &'static str,
    /// How many are started at a time, spares and what is made because there was none together.
    pub starts_at_once: usize,
    /// What each tenant may have of those starts; so many may wait for one.
    pub share: Share,
    /// How long the start of a spare may take, from its turn on.
    pub start_within: Duration,
    /// How long it is waited after a failure.
    pub backoff: Backoff,
}

impl PoolOptions {
    /// A pool of this size. A spare may be 30 minutes old; as many are started at a time as there are processors; each has a
    /// minute for it; after a failure it is waited up to a second, doubling up to a minute.
    #[must_use]
    pub fn of_size(size: usize) -> Self {
        Self {
            size,
            max_age: Duration::from_secs(30 * 60),
            starts: "the starts of sandboxes",
            starts_at_once: std::thread::available_parallelism().map_or(1, NonZero::get),
            share: Share::default(),
            start_within: Duration::from_secs(60),
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(120)),
        }
    }
}

/// What the handle and the actor share.
pub(super) struct Makings<M: SpareSource> {
    pub(super) name: ChildId,
    pub(super) source: M,
    pub(super) options: PoolOptions,
    pub(super) starts: Gate,
    pub(super) shelf: Shelf<M::Spare>,
}

/// A pool, before it is part of a tree.
pub struct PoolSpec<M: SpareSource> {
    makings: Makings<M>,
}

impl<M: SpareSource> PoolSpec<M> {
    /// A pool of this name, with spares of this source.
    #[must_use]
    pub fn new(name: ChildId, source: M, options: PoolOptions) -> Self {
        let starts = u32::try_from(options.starts_at_once.max(1)).unwrap_or(u32::MAX);
        let starts = Gate::new(options.starts, starts, options.share);
        let shelf = Shelf::new(Meter::new(name.to_string()));
        Self { makings: Makings { name, source, options, starts, shelf } }
    }

    /// The actor's spec, for a supervisor, and the pool, which works while that runs.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn build(self) -> Result<(ChildSpec, Pool<M>), SpecError> {
        let makings = Arc::new(self.makings);
        let actor = Arc::clone(&makings);
        let start = move |context| {
            let makings = Arc::clone(&actor);
            async move { Ok(PoolActor::start(makings, &context)) }
        };
        let (spec, _) = WorkerSpec::new(makings.name.clone(), start).build();
        Ok((spec, Pool { makings }))
    }
}

impl<M: SpareSource> fmt::Debug for PoolSpec<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolSpec").field("name", &self.makings.name).finish_non_exhaustive()
    }
}

/// A pool of spares; see the [module](super). Clones are the same.
pub struct Pool<M: SpareSource> {
    makings: Arc<Makings<M>>,
}

impl<M: SpareSource> Pool<M> {
    /// What comes of a spare when `claim` makes it somebody's. `None` when there is none that is ready, or none can be claimed:
    /// then it is to be made, through [`Pool::admit`]. A spare that has just ended is no reason not to take the next one.
    pub async fn claim<T, F>(&self, claim: impl Fn(M::Spare) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, SandboxError>>,
    {
        let Makings { shelf, name, .. } = &*self.makings;
        while let Some(spare) = shelf.take() {
            match claim(spare).await {
                Ok(claimed) => {
                    shelf.meter.count(Event::Hit);
                    return Some(claimed);
                }
                Err(error) if error.kind() == SandboxErrorKind::Lost => {
                    tracing::debug!(pool = %name, %error, "a spare has ended while it was claimed");
                }
                Err(error) => {
                    tracing::warn!(pool = %name, %error, "a spare cannot be claimed; another sandbox is made");
                    break;
                }
            }
        }
        self.missed();
        None
    }

    /// Counts a session that no spare of it could serve.
    pub fn missed(&self) {
        self.makings.shelf.meter.count(Event::Miss);
    }

    /// Waits until one more may be started for this tenant, which is to be ready by `deadline`: a tenth of the time is left to the
    /// start.
    ///
    /// # Errors
    /// When as many of the tenant wait as may, or it was not its turn in time.
    pub async fn admit(&self, tenant: &TenantId, deadline: Deadline) -> Result<Permit, Overloaded> {
        self.makings.starts.admit(tenant, turn_before(deadline)).await
    }

    /// What all that is started passes: a tenant's share of it may be set there. Spares wait there, too, in no tenant's name, until
    /// no tenant waits.
    #[must_use]
    pub fn starts(&self) -> &Gate {
        &self.makings.starts
    }

    /// How it is, and what happened so far.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let Makings { name, options, shelf, starts, .. } = &*self.makings;
        let (meter, load) = (&shelf.meter, starts.load());
        PoolStats {
            name: name.to_string(),
            size: options.size,
            ready: shelf.len(),
            starting: meter.starting(),
            starts_at_once: load.capacity,
            under_way: load.admitted,
            waiting: load.waiting,
            hits: meter.of(Event::Hit),
            misses: meter.of(Event::Miss),
            refills: meter.of(Event::Ready),
            died: meter.of(Event::Died),
            retired: meter.of(Event::Retired),
            failed: meter.of(Event::Failed),
            last_failure: shelf.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl<M: SpareSource> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self { makings: Arc::clone(&self.makings) }
    }
}

impl<M: SpareSource> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// How a pool is, and what happened since it was made. Counts only grow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Its name.
    pub name: String,
    /// How many are to be ready.
    pub size: usize,
    /// How many are.
    pub ready: usize,
    /// How many are being started, or wait for that.
    pub starting: usize,
    /// How many starts may be under way at a time, of spares and of what is made because there was none.
    pub starts_at_once: u32,
    /// How many of those are.
    pub under_way: u32,
    /// How many of those wait for their turn.
    pub waiting: usize,
    /// Sessions that got a spare.
    pub hits: u64,
    /// Sessions for which one had to be made.
    pub misses: u64,
    /// Spares that became ready.
    pub refills: u64,
    /// Spares that ended while they waited.
    pub died: u64,
    /// Spares that were too old.
    pub retired: u64,
    /// Spares that could not be made.
    pub failed: u64,
    /// Why the last of those could not be made. It may name folders of the host's.
    pub last_failure: Option<String>,
}
