//! The place that an actor's incarnations take one after another, so that an address stays good over restarts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ractor::{ActorRef, Message};

use super::life::Life;

/// Who is at a place now, if anybody.
pub(crate) struct Slot<T> {
    place: Mutex<Place<T>>,
}

struct Place<T> {
    current: Option<ActorRef<T>>,
    /// The last incarnation that took the place; it may be gone.
    life: Option<Arc<Life>>,
    incarnations: u64,
}

impl<T: Message> Slot<T> {
    pub(crate) fn new() -> Self {
        Self { place: Mutex::new(Place { current: None, life: None, incarnations: 0 }) }
    }

    fn place(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the incarnation that is about to come.
    pub(crate) fn next_incarnation(&self) -> u64 {
        let mut place = self.place();
        place.incarnations += 1;
        place.incarnations
    }

    pub(crate) fn attach(&self, actor: ActorRef<T>, life: &Arc<Life>) {
        let mut place = self.place();
        place.current = Some(actor);
        place.life = Some(Arc::clone(life));
    }

    /// Leaves the place, unless another has taken it.
    pub(crate) fn detach(&self, life: &Arc<Life>) {
        let mut place = self.place();
        if place.life.as_ref().is_some_and(|current| Arc::ptr_eq(current, life)) {
            place.current = None;
        }
    }

    pub(crate) fn current(&self) -> Option<ActorRef<T>> {
        self.place().current.clone()
    }

    pub(crate) fn life(&self) -> Option<Arc<Life>> {
        self.place().life.clone()
    }
}

/// Leaves the place when it is dropped.
pub(crate) struct Attachment<T: Message> {
    pub(crate) slot: Arc<Slot<T>>,
    pub(crate) life: Arc<Life>,
}

impl<T: Message> Drop for Attachment<T> {
    fn drop(&mut self) {
        self.slot.detach(&self.life);
    }
}
