//! The slot for an actor's incarnations, one after another. It keeps the actor's address valid over restarts.

use std::sync::{Arc, Mutex, MutexGuard};

use conjure_base::lock;
use ractor::{ActorRef, Message};

use super::incarnation::Incarnation;

/// Holds the incarnation that accepts messages, if any, and the last incarnation.
pub(crate) struct ActorSlot<T> {
    state: Mutex<SlotState<T>>,
}

struct SlotState<T> {
    running: Option<ActorRef<T>>,
    /// The last incarnation; it may be gone.
    incarnation: Option<Arc<Incarnation>>,
    incarnations: u64,
}

impl<T: Message> ActorSlot<T> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(SlotState { running: None, incarnation: None, incarnations: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, SlotState<T>> {
        lock(&self.state)
    }

    /// The number of the next incarnation.
    pub(crate) fn next_incarnation(&self) -> u64 {
        let mut state = self.state();
        state.incarnations += 1;
        state.incarnations
    }

    pub(crate) fn attach(&self, actor: ActorRef<T>, incarnation: &Arc<Incarnation>) {
        let mut state = self.state();
        state.running = Some(actor);
        state.incarnation = Some(Arc::clone(incarnation));
    }

    /// Stops messages to this incarnation, unless another one has attached.
    pub(crate) fn detach(&self, incarnation: &Arc<Incarnation>) {
        let mut state = self.state();
        if state.incarnation.as_ref().is_some_and(|last| Arc::ptr_eq(last, incarnation)) {
            state.running = None;
        }
    }

    pub(crate) fn running(&self) -> Option<ActorRef<T>> {
        self.state().running.clone()
    }

    pub(crate) fn incarnation(&self) -> Option<Arc<Incarnation>> {
        self.state().incarnation.clone()
    }
}

/// Detaches its incarnation from the slot when it is dropped.
pub(crate) struct SlotGuard<T: Message> {
    pub(crate) slot: Arc<ActorSlot<T>>,
    pub(crate) incarnation: Arc<Incarnation>,
}

impl<T: Message> Drop for SlotGuard<T> {
    fn drop(&mut self) {
        self.slot.detach(&self.incarnation);
    }
}
