//! Where spares wait: the pool's actor puts them there, whoever claims one takes it, without asking the actor.
//!
//! State: the spares that are ready, in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::item::PoolItem;
use super::machine::ItemId;
use super::stats::PoolMetrics;

#[derive(Debug)]
pub(super) struct ReadyItems<S> {
    items: Mutex<VecDeque<ReadyItem<S>>>,
    next: AtomicU64,
    pub(super) metrics: PoolMetrics,
    /// Why the last one could not be made.
    pub(super) failure: Mutex<Option<String>>,
}

/// A spare that waits.
#[derive(Debug)]
struct ReadyItem<S> {
    id: ItemId,
    item: S,
    /// Cancelled when it does not wait any more.
    taken: CancellationToken,
}

impl<S> ReadyItems<S> {
    pub(super) fn new(metrics: PoolMetrics) -> Self {
        Self { items: Mutex::default(), next: AtomicU64::new(1), metrics, failure: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ReadyItem<S>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a spare there. The token is cancelled when it does not lie there any more.
    pub(super) fn put(&self, item: S) -> (ItemId, CancellationToken) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let taken = CancellationToken::new();
        let mut items = self.lock();
        items.push_back(ReadyItem { id, item, taken: taken.clone() });
        self.metrics.set_ready(items.len());
        (id, taken)
    }

    /// Takes this one, if it lies there still.
    pub(super) fn remove(&self, id: ItemId) -> Option<S> {
        let mut items = self.lock();
        let at = items.iter().position(|waiting| waiting.id == id)?;
        let taken = items.remove(at).map(ReadyItem::take);
        self.metrics.set_ready(items.len());
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl<S: PoolItem> ReadyItems<S> {
    /// Takes the oldest that has not ended. Those that have are put away by who put them there.
    pub(super) fn take(&self) -> Option<S> {
        let mut items = self.lock();
        let at = items.iter().position(|waiting| waiting.item.is_live())?;
        let taken = items.remove(at).map(ReadyItem::take);
        self.metrics.set_ready(items.len());
        taken
    }
}

impl<S> ReadyItem<S> {
    fn take(self) -> S {
        self.taken.cancel();
        self.item
    }
}
