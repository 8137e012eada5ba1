//! What happens in a pool, counted: for whoever asks the pool, and for the host's recorder of metrics.
//!
//! State: the counts, in memory. They are those of the pool, over all incarnations of its actor.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use metrics::{Gauge, SharedString, counter, gauge};

use crate::metrics::{GaugeShare, names};

/// What happens in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolEvent {
    /// A session got a spare.
    Hit,
    /// One had to be made for a session.
    Miss,
    /// A spare became ready.
    Ready,
    /// A spare could not be made.
    Failed,
    /// A spare ended while it waited.
    Died,
    /// A spare was too old.
    Retired,
}

/// How often each of them happened, and how many are being started.
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
    reported_ready: Mutex<GaugeShare>,
}

/// One is being started until this is dropped.
pub(super) struct StartGuard<'a>(&'a PoolMetrics);

impl PoolMetrics {
    /// Of the pool of this name.
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
            reported_ready: Mutex::default(),
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

    /// Counts one of these.
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

    /// How often this happened.
    pub(super) fn count_of(&self, event: PoolEvent) -> u64 {
        self.counter(event).load(Ordering::Relaxed)
    }

    /// So many are ready. To be said by one at a time.
    pub(super) fn set_ready(&self, count: usize) {
        let mut reported = self.reported_ready.lock().unwrap_or_else(PoisonError::into_inner);
        reported.set(count, || gauge!(names::POOL_READY, "pool" => self.pool.clone()));
    }

    /// One is being started.
    pub(super) fn start(&self) -> StartGuard<'_> {
        self.starting.fetch_add(1, Ordering::Relaxed);
        self.starting_gauge().increment(1.0);
        StartGuard(self)
    }

    /// How many are being started.
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
