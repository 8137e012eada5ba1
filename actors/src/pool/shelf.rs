//! Where spares wait: the pool's actor puts them there, whoever claims one takes it, without asking the actor.
//!
//! State: the spares that are ready, and what was counted; in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::machine::Number;
use super::spec::Spare;

#[derive(Debug)]
pub(super) struct Shelf<S> {
    spares: Mutex<VecDeque<Waiting<S>>>,
    next: AtomicU64,
    pub(super) counts: Counts,
}

/// A spare that waits.
#[derive(Debug)]
struct Waiting<S> {
    number: Number,
    spare: S,
    /// Cancelled when it does not wait any more.
    left: CancellationToken,
}

/// What happened so far, and what is under way.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) refills: AtomicU64,
    pub(super) died: AtomicU64,
    pub(super) retired: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) starting: AtomicUsize,
    pub(super) failure: Mutex<Option<String>>,
}

impl<S> Default for Shelf<S> {
    fn default() -> Self {
        Self { spares: Mutex::default(), next: AtomicU64::new(1), counts: Counts::default() }
    }
}

impl<S> Shelf<S> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting<S>>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a spare there. The token is cancelled when it does not lie there any more.
    pub(super) fn put(&self, spare: S) -> (Number, CancellationToken) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let left = CancellationToken::new();
        self.lock().push_back(Waiting { number, spare, left: left.clone() });
        (number, left)
    }

    /// Takes this one, if it lies there still.
    pub(super) fn remove(&self, number: Number) -> Option<S> {
        let mut spares = self.lock();
        let at = spares.iter().position(|waiting| waiting.number == number)?;
        spares.remove(at).map(Waiting::leave)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl<S: Spare> Shelf<S> {
    /// Takes the oldest that has not ended. Those that have are put away by who put them there.
    pub(super) fn take(&self) -> Option<S> {
        let mut spares = self.lock();
        let at = spares.iter().position(|waiting| waiting.spare.is_live())?;
        spares.remove(at).map(Waiting::leave)
    }
}

impl<S> Waiting<S> {
    fn leave(self) -> S {
        self.left.cancel();
        self.spare
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
