//! Values of a label, with a limit on how many are distinguished.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use conjure_base::lock;

/// A label value, in the form that recorders take. Cheap to clone.
pub(crate) type Label = Arc<str>;

/// The value for everything beyond the limit.
const OTHER: &str = "other";

/// The values of one label. The first values are distinguished, and all later ones become `other`. A recorder never
/// forgets a series, so a value is never removed.
#[derive(Debug)]
pub(crate) struct BoundedLabels {
    max: usize,
    other: Label,
    known: Mutex<HashSet<Label>>,
}

impl BoundedLabels {
    /// Distinguishes up to `max` values.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, other: OTHER.into(), known: Mutex::default() }
    }

    /// The label of this value. A new value gets its own label if there is room.
    pub(crate) fn get_or_add(&self, value: &str) -> Label {
        let mut known = lock(&self.known);
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

    /// The label of this value, without adding it.
    pub(crate) fn get(&self, value: &str) -> Label {
        let known = lock(&self.known);
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
