//! The ready items. The pool's actor adds them; callers take them without asking the actor.
//!
//! State: the items, in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use conjure_base::lock;
use tokio_util::sync::CancellationToken;

use super::item::PoolItem;
use super::machine::ItemId;
use super::stats::PoolMetrics;

pub(super) struct ReadyItems<S> {
    items: Mutex<VecDeque<ReadyItem<S>>>,
    next: AtomicU64,
    pub(super) metrics: PoolMetrics,
    /// Why the last item could not be created.
    pub(super) failure: Mutex<Option<String>>,
}

/// A ready item.
struct ReadyItem<S> {
    id: ItemId,
    item: S,
    /// Cancelled when the item is no longer here.
    taken: CancellationToken,
}

impl<S> ReadyItems<S> {
    pub(super) fn new(metrics: PoolMetrics) -> Self {
        Self { items: Mutex::default(), next: AtomicU64::new(1), metrics, failure: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ReadyItem<S>>> {
        lock(&self.items)
    }

    /// Adds an item. The token is cancelled when the item is no longer here.
    pub(super) fn put(&self, item: S) -> (ItemId, CancellationToken) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let taken = CancellationToken::new();
        let mut items = self.lock();
        items.push_back(ReadyItem { id, item, taken: taken.clone() });
        self.metrics.set_ready(items.len());
        (id, taken)
    }

    /// Removes this item, if it is still here.
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
    /// Takes the oldest item that has not ended. The actor removes the ended ones.
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
