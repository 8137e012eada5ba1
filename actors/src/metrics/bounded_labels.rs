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
pub(crate) struct BoundedLabels {
    max: usize,
    other: Label,
    known: Mutex<HashSet<Label>>,
}

impl BoundedLabels {
    /// Tells `most` values apart.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, other: OTHER.into(), known: Mutex::default() }
    }

    /// The label of this value, which gets one of its own where there is room.
    pub(crate) fn get_or_add(&self, value: &str) -> Label {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = known.get(value) {
            return Arc::clone(label);
        }
        if known.len() >= self.max {
            return Arc::clone(&self.other);
        }
        let label = Label::from(value);
        known.insert(Arc::clone(&label));
        label
    }

    /// The label of this value as it is: one that has none gets none.
    pub(crate) fn get(&self, value: &str) -> Label {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.get(value).unwrap_or(&self.other))
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedLabels;

    #[test]
    fn the_first_values_are_told_apart_and_stay() {
        let labels = BoundedLabels::new(2);
        assert_eq!(&*labels.get("a"), "other");
        assert_eq!(&*labels.get_or_add("a"), "a");
        assert_eq!(&*labels.get_or_add("b"), "b");
        assert_eq!(&*labels.get_or_add("c"), "other");
        assert_eq!(&*labels.get_or_add("a"), "a");
        assert_eq!(&*labels.get("b"), "b");
        assert_eq!(&*labels.get("c"), "other");
    }

    #[test]
    fn none_are_told_apart_where_none_may_be() {
        assert_eq!(&*BoundedLabels::new(0).get_or_add("a"), "other");
    }
}
