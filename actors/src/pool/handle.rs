//! The handle of a pool.

use std::fmt;
use std::sync::Arc;

use conjure_base::{Deadline, TenantId, lock};
use conjure_sandbox::{SandboxError, SandboxErrorKind};

use super::actor::PoolActor;
use super::item::PoolItemFactory;
use super::pool_shared::{PoolOptions, PoolShared};
use super::ready_items::ReadyItems;
use super::stats::{PoolEvent, PoolMetrics};
use crate::admission::{AdmissionGate, Overloaded, Permit, deadline_before};
use crate::supervision::{ChildId, ChildSpec, WorkerSpec};

/// A pool of warm items; see the [module](super). Clones share it.
pub struct Pool<F: PoolItemFactory> {
    shared: Arc<PoolShared<F>>,
}

impl<F: PoolItemFactory> Pool<F> {
    /// A pool of this name, with items of this factory: the spec of its actor for a supervisor, and the pool, which works while the actor
    /// runs.
    #[must_use]
    pub fn spec(name: ChildId, source: F, options: PoolOptions) -> (ChildSpec, Self) {
        let start_gate = u32::try_from(options.starts_at_once.max(1)).unwrap_or(u32::MAX);
        let start_gate = AdmissionGate::new(options.start_gate_name, start_gate, options.share);
        let ready_items = ReadyItems::new(PoolMetrics::new(name.to_string()));
        let shared = Arc::new(PoolShared { name, source, options, start_gate, ready_items });
        let actor = Arc::clone(&shared);
        let start = move |context| {
            let shared = Arc::clone(&actor);
            async move { Ok(PoolActor::start(shared, &context)) }
        };
        let (spec, _) = WorkerSpec::new(shared.name.clone(), start).build();
        (spec, Self { shared })
    }

    /// Claims an item, and returns the result of `claim` for it. If an item has just ended, the next one is tried. Returns `None`
    /// if no item is ready or can be claimed. The caller then creates one, after [`Pool::admit`].
    pub async fn claim<T, C>(&self, claim: impl Fn(F::Item) -> C) -> Option<T>
    where
        C: Future<Output = Result<T, SandboxError>>,
    {
        let PoolShared { ready_items, name, .. } = &*self.shared;
        while let Some(item) = ready_items.take() {
            match claim(item).await {
                Ok(claimed) => {
                    ready_items.metrics.count(PoolEvent::Hit);
                    return Some(claimed);
                }
                Err(error) if error.kind() == SandboxErrorKind::Lost => {
                    tracing::debug!(pool = %name, %error, "a warm sandbox ended while it was claimed");
                }
                Err(error) => {
                    tracing::warn!(pool = %name, %error, "a warm sandbox cannot be claimed; another sandbox is created");
                    break;
                }
            }
        }
        self.record_miss();
        None
    }

    /// Counts a session that got no item from the pool.
    pub fn record_miss(&self) {
        self.shared.ready_items.metrics.count(PoolEvent::Miss);
    }

    /// Waits for admission of one more start for this tenant, which must be ready by `deadline`. A tenth of the time
    /// remains for the start.
    ///
    /// # Errors
    /// If the tenant has too many waiting requests, or if it was not admitted in time.
    pub async fn admit(&self, tenant: &TenantId, deadline: Deadline) -> Result<Permit, Overloaded> {
        self.shared.start_gate.admit(tenant, deadline_before(deadline)).await
    }

    /// The gate that all starts pass. The tenants' shares can be set there. Refills wait there as background work, until no tenant
    /// waits.
    #[must_use]
    pub fn start_gate(&self) -> &AdmissionGate {
        &self.shared.start_gate
    }

    /// The current state of the pool, and its counts.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let PoolShared { name, options, ready_items, start_gate, .. } = &*self.shared;
        let (metrics, load) = (&ready_items.metrics, start_gate.load());
        PoolStats {
            name: name.to_string(),
            size: options.size,
            ready: ready_items.len(),
            starting: metrics.starting(),
            starts_at_once: load.limit,
            running_starts: load.admitted,
            waiting: load.waiting,
            hits: metrics.count_of(PoolEvent::Hit),
            misses: metrics.count_of(PoolEvent::Miss),
            refills: metrics.count_of(PoolEvent::Ready),
            died: metrics.count_of(PoolEvent::Died),
            retired: metrics.count_of(PoolEvent::Retired),
            failed: metrics.count_of(PoolEvent::Failed),
            last_failure: lock(&ready_items.failure).clone(),
        }
    }
}

impl<F: PoolItemFactory> Clone for Pool<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<F: PoolItemFactory> fmt::Debug for Pool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The state of a pool, and what happened since it was created. Counts only grow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The pool's name.
    pub name: String,
    /// How many items should be ready.
    pub size: usize,
    /// How many items are ready.
    pub ready: usize,
    /// How many items are starting or waiting to start.
    pub starting: usize,
    /// How many starts may run at a time, including those for sessions that found no item.
    pub starts_at_once: u32,
    /// How many starts run.
    pub running_starts: u32,
    /// How many starts wait for admission.
    pub waiting: usize,
    /// Sessions that got an item.
    pub hits: u64,
    /// Sessions for which an item had to be created.
    pub misses: u64,
    /// Items that became ready.
    pub refills: u64,
    /// Items that ended while they waited.
    pub died: u64,
    /// Items that were too old.
    pub retired: u64,
    /// Items that could not be created.
    pub failed: u64,
    /// Why the last failed item could not be created. The text may name directories of the host.
    pub last_failure: Option<String>,
}
