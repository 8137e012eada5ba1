//! Values of a label, of which only so many are told apart.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A value as recorders take it. A clone costs nothing.
pub(crate) type Label = Arc<str>;

/// What stands for all values beyond the bound.
const OTHER: &str = "other";

/// Gives out values of one label: the first so many are told apart, all later ones are `other`. A series of a recorder is never
/// forgotten, so neither is a value: what comes first stays.
#[derive(Debug)]
pub(crate) struct Labels {
    most: usize,
    other: Label,
    known: Mutex<HashSet<Label>>,
}

impl Labels {
    /// Tells `most` values apart.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, other: OTHER.into(), known: Mutex::default() }
    }

    /// The label of this value, which gets one of its own where there is room.
    pub(crate) fn of(&self, value: &str) -> Label {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = known.get(value) {
            return Arc::clone(label);
        }
        if known.len() >= self.most {
            return Arc::clone(&self.other);
        }
        let label = Label::from(value);
        known.insert(Arc::clone(&label));
        label
    }

    /// The label of this value as it is: one that has none gets none.
    pub(crate) fn known(&self, value: &str) -> Label {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.get(value).unwrap_or(&self.other))
    }
}

#[cfg(test)]
mod tests {
    use super::Labels;

    #[test]
    fn the_first_values_are_told_apart_and_stay() {
        let labels = Labels::new(2);
        assert_eq!(&*labels.known("a"), "other");
        assert_eq!(&*labels.of("a"), "a");
        assert_eq!(&*labels.of("b"), "b");
        assert_eq!(&*labels.of("c"), "other");
        assert_eq!(&*labels.of("a"), "a");
        assert_eq!(&*labels.known("b"), "b");
        assert_eq!(&*labels.known("c"), "other");
    }

    #[test]
    fn none_are_told_apart_where_none_may_be() {
        assert_eq!(&*Labels::new(0).of("a"), "other");
    }
}
