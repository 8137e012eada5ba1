//! The counts of a pool, for callers and for the metrics recorder.
//!
//! State: the counts, over all incarnations of the pool's actor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use conjure_base::lock;
use metrics::{Gauge, SharedString, counter, gauge};

use crate::metrics::GaugeShare;
use crate::metrics::names;

/// An event in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolEvent {
    /// A session got an item.
    Hit,
    /// An item had to be created for a session.
    Miss,
    /// An item became ready.
    Ready,
    /// An item could not be created.
    Failed,
    /// An item ended while it waited.
    Died,
    /// An item was too old.
    Retired,
}

/// The number of each event, and of starting items.
pub(super) struct PoolMetrics {
    pool: SharedString,
    /// By [`PoolEvent`].
    counts: [AtomicU64; PoolEvent::Retired as usize + 1],
    starting: AtomicUsize,
    reported_ready: Mutex<GaugeShare>,
}

/// Counts a start until it is dropped.
pub(super) struct StartGuard<'a>(&'a PoolMetrics);

impl PoolMetrics {
    /// The counts of the pool of this name.
    pub(super) fn new(pool: String) -> Self {
        Self {
            pool: pool.into(),
            counts: Default::default(),
            starting: AtomicUsize::new(0),
            reported_ready: Mutex::default(),
        }
    }

    /// Counts one event.
    pub(super) fn count(&self, event: PoolEvent) {
        self.counts[event as usize].fetch_add(1, Ordering::Relaxed);
        let (metric, outcome) = match event {
            PoolEvent::Hit => (names::POOL_CLAIMS, "hit"),
            PoolEvent::Miss => (names::POOL_CLAIMS, "miss"),
            PoolEvent::Ready => (names::POOL_ITEMS, "ready"),
            PoolEvent::Failed => (names::POOL_ITEMS, "failed"),
            PoolEvent::Died => (names::POOL_ITEMS, "died"),
            PoolEvent::Retired => (names::POOL_ITEMS, "retired"),
        };
        counter!(metric, "pool" => self.pool.clone(), "outcome" => outcome).increment(1);
    }

    /// How often this event happened.
    pub(super) fn count_of(&self, event: PoolEvent) -> u64 {
        self.counts[event as usize].load(Ordering::Relaxed)
    }

    /// Reports the number of ready items. Calls must not overlap.
    pub(super) fn set_ready(&self, count: usize) {
        let mut reported = lock(&self.reported_ready);
        reported.set(count, || gauge!(names::POOL_READY, "pool" => self.pool.clone()));
    }

    /// Counts a start.
    pub(super) fn start(&self) -> StartGuard<'_> {
        self.starting.fetch_add(1, Ordering::Relaxed);
        self.starting_gauge().increment(1.0);
        StartGuard(self)
    }

    /// How many items are starting.
    pub(super) fn starting(&self) -> usize {
        self.starting.load(Ordering::Relaxed)
    }

    fn starting_gauge(&self) -> Gauge {
        gauge!(names::POOL_STARTING, "pool" => self.pool.clone())
    }
}

impl Drop for StartGuard<'_> {
    fn drop(&mut self) {
        self.0.starting.fetch_sub(1, Ordering::Relaxed);
        self.0.starting_gauge().decrement(1.0);
    }
}
