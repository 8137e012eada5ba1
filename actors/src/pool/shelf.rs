//! Where spares wait: the pool's actor puts them there, whoever claims one takes it, without asking the actor.
//!
//! State: the spares that are ready, in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::machine::Number;
use super::meter::Meter;
use super::spec::Spare;

#[derive(Debug)]
pub(super) struct Shelf<S> {
    spares: Mutex<VecDeque<Waiting<S>>>,
    next: AtomicU64,
    pub(super) meter: Meter,
    /// Why the last one could not be made.
    pub(super) failure: Mutex<Option<String>>,
}

/// A spare that waits.
#[derive(Debug)]
struct Waiting<S> {
    number: Number,
    spare: S,
    /// Cancelled when it does not wait any more.
    left: CancellationToken,
}

impl<S> Shelf<S> {
    pub(super) fn new(meter: Meter) -> Self {
        Self { spares: Mutex::default(), next: AtomicU64::new(1), meter, failure: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting<S>>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a spare there. The token is cancelled when it does not lie there any more.
    pub(super) fn put(&self, spare: S) -> (Number, CancellationToken) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let left = CancellationToken::new();
        let mut spares = self.lock();
        spares.push_back(Waiting { number, spare, left: left.clone() });
        self.meter.says_ready(spares.len());
        (number, left)
    }

    /// Takes this one, if it lies there still.
    pub(super) fn remove(&self, number: Number) -> Option<S> {
        let mut spares = self.lock();
        let at = spares.iter().position(|waiting| waiting.number == number)?;
        let taken = spares.remove(at).map(Waiting::leave);
        self.meter.says_ready(spares.len());
        taken
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
        let taken = spares.remove(at).map(Waiting::leave);
        self.meter.says_ready(spares.len());
        taken
    }
}

impl<S> Waiting<S> {
    fn leave(self) -> S {
        self.left.cancel();
        self.spare
    }
}
