//! The counts of a pool, for callers and for the metrics recorder.
//!
//! State: the counts, over all incarnations of the pool's actor.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use metrics::{SharedString, counter, gauge};

use crate::metrics::{GaugeGuard, names};

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
#[derive(Debug)]
pub(super) struct PoolMetrics {
    pool: SharedString,
    hits: AtomicU64,
    misses: AtomicU64,
    ready: AtomicU64,
    failed: AtomicU64,
    died: AtomicU64,
    retired: AtomicU64,
    starting: AtomicUsize,
}

/// Counts a start until it is dropped.
pub(super) struct StartGuard<'a> {
    metrics: &'a PoolMetrics,
    _reported: GaugeGuard,
}

impl PoolMetrics {
    /// The counts of the pool of this name.
    pub(super) fn new(pool: String) -> Self {
        Self {
            pool: pool.into(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            ready: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            died: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            starting: AtomicUsize::new(0),
        }
    }

    fn counter(&self, event: PoolEvent) -> &AtomicU64 {
        match event {
            PoolEvent::Hit => &self.hits,
            PoolEvent::Miss => &self.misses,
            PoolEvent::Ready => &self.ready,
            PoolEvent::Failed => &self.failed,
            PoolEvent::Died => &self.died,
            PoolEvent::Retired => &self.retired,
        }
    }

    /// Counts one event.
    pub(super) fn count(&self, event: PoolEvent) {
        self.counter(event).fetch_add(1, Ordering::Relaxed);
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
        self.counter(event).load(Ordering::Relaxed)
    }

    /// Reports an item as ready until the guard is dropped.
    pub(super) fn ready_guard(&self) -> GaugeGuard {
        GaugeGuard::new(gauge!(names::POOL_READY, "pool" => self.pool.clone()))
    }

    /// Counts a start.
    pub(super) fn start(&self) -> StartGuard<'_> {
        self.starting.fetch_add(1, Ordering::Relaxed);
        let reported = GaugeGuard::new(gauge!(names::POOL_STARTING, "pool" => self.pool.clone()));
        StartGuard { metrics: self, _reported: reported }
    }

    /// How many items are starting.
    pub(super) fn starting(&self) -> usize {
        self.starting.load(Ordering::Relaxed)
    }
}

impl Drop for StartGuard<'_> {
    fn drop(&mut self) {
        self.metrics.starting.fetch_sub(1, Ordering::Relaxed);
    }
}
