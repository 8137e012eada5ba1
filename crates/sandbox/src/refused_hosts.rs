//! [`RefusedHosts`]: what a sandbox's network has refused, for whoever tells people why a program does not work.
//!
//! State, in memory: the last refusals, and how many there were.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use conjure_base::lock;

/// How many refusals are kept.
const MAX_KEPT: usize = 16;

/// The hosts that the network of a sandbox has refused. Clones are the same; two are equal if they are the same.
#[derive(Debug, Clone, Default)]
pub struct RefusedHosts(Arc<Mutex<Refusals>>);

#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    /// The last ones, with their numbers.
    last: VecDeque<(u64, String)>,
}

impl RefusedHosts {
    /// Nothing was refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a refusal: which host and port, and why.
    pub fn add(&self, refusal: String) {
        let mut refusals = lock(&self.0);
        refusals.count += 1;
        let number = refusals.count;
        refusals.last.push_back((number, refusal));
        if refusals.last.len() > MAX_KEPT {
            refusals.last.pop_front();
        }
    }

    /// How many refusals there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        lock(&self.0).count
    }

    /// The refusals after the first `count`, each text once. Of many, the first ones are missing.
    #[must_use]
    pub fn since(&self, count: u64) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for (_, text) in lock(&self.0).last.iter().filter(|(number, _)| *number > count) {
            if !texts.contains(text) {
                texts.push(text.clone());
            }
        }
        texts
    }
}

impl PartialEq for RefusedHosts {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RefusedHosts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_told_once_and_the_last_ones_stay() {
        let hosts = RefusedHosts::new();
        hosts.add("a".to_owned());
        let before = hosts.count();
        for text in ["b", "c", "b"] {
            hosts.add(text.to_owned());
        }
        assert_eq!(hosts.since(before), ["b", "c"]);
        assert_eq!(hosts.since(0), ["a", "b", "c"]);
        assert!(hosts.since(hosts.count()).is_empty());
        (0..100).for_each(|number| hosts.clone().add(number.to_string()));
        assert_eq!(hosts.since(0).len(), MAX_KEPT);
        assert_eq!(hosts.since(0).last().map(String::as_str), Some("99"));
    }
}
