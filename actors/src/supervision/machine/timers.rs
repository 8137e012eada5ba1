//! When the machine wants to be woken: at most one time for each child.

use std::collections::{BTreeSet, HashMap};

use super::types::{Key, Moment};

/// The times, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Moment, Key)>,
    of: HashMap<Key, Moment>,
}

impl Timers {
    /// The child is to be looked at then, and at no other time.
    pub(crate) fn set(&mut self, key: Key, at: Moment) {
        self.clear(key);
        self.of.insert(key, at);
        self.order.insert((at, key));
    }

    pub(crate) fn clear(&mut self, key: Key) {
        if let Some(at) = self.of.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the first that has come.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<Key> {
        let (at, key) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }

    /// How many children have a time.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.of.len(), self.order.len());
        self.of.len()
    }
}
