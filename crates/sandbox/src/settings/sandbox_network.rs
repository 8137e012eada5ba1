//! [`SandboxNetwork`]: the handle with which the owner of a sandbox reads what its network refused, and begins the start-up.
//!
//! State, in memory: the last refusals, how many there were, and whether the start-up goes on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use conjure_base::lock;

/// How many refusals are kept.
const MAX_KEPT: usize = 16;

/// The network of a sandbox: which hosts it refused, and whether its program is starting up, so that it may reach
/// [`ExecutionContext::startup_network`] as well. Clones are the same; two are equal if they are the same.
///
/// [`ExecutionContext::startup_network`]: crate::ExecutionContext::startup_network
///
/// ```
/// use conjure_sandbox::SandboxNetwork;
///
/// let network = SandboxNetwork::new();
/// assert!(!network.is_starting_up());
/// let startup = network.begin_startup();
/// assert!(network.is_starting_up());
/// drop(startup);
/// assert!(!network.is_starting_up());
/// ```
#[derive(Debug, Clone, Default)]
pub struct SandboxNetwork(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_starting_up: AtomicBool,
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    /// The last ones, with their numbers.
    last: VecDeque<(u64, String)>,
}

impl SandboxNetwork {
    /// Nothing was refused, and nothing starts up.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The program starts up: new connections may also reach the start-up's network, until the guard is dropped. Those that are open then stay.
    #[must_use = "the start-up ends when this is dropped"]
    pub fn begin_startup(&self) -> StartupGuard {
        self.0.is_starting_up.store(true, Ordering::Release);
        StartupGuard(self.clone())
    }

    /// Whether the program starts up now.
    #[must_use]
    pub fn is_starting_up(&self) -> bool {
        self.0.is_starting_up.load(Ordering::Acquire)
    }

    /// Adds a refusal: which host and port, and why.
    pub fn add_refusal(&self, refusal: String) {
        let mut refusals = lock(&self.0.refusals);
        refusals.count += 1;
        let number = refusals.count;
        refusals.last.push_back((number, refusal));
        if refusals.last.len() > MAX_KEPT {
            refusals.last.pop_front();
        }
    }

    /// How many refusals there were.
    #[must_use]
    pub fn refusal_count(&self) -> u64 {
        lock(&self.0.refusals).count
    }

    /// The refusals after the first `count`, each text once. Of many, the first ones are missing.
    #[must_use]
    pub fn refusals_since(&self, count: u64) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for (_, text) in lock(&self.0.refusals).last.iter().filter(|(number, _)| *number > count) {
            if !texts.contains(text) {
                texts.push(text.clone());
            }
        }
        texts
    }
}

/// The start-up of a program, which ends when this is dropped.
#[derive(Debug)]
pub struct StartupGuard(SandboxNetwork);

impl Drop for StartupGuard {
    fn drop(&mut self) {
        self.0.0.is_starting_up.store(false, Ordering::Release);
    }
}

impl PartialEq for SandboxNetwork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SandboxNetwork {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_told_once_and_the_last_ones_stay() {
        let network = SandboxNetwork::new();
        network.add_refusal("a".to_owned());
        let before = network.refusal_count();
        for text in ["b", "c", "b"] {
            network.add_refusal(text.to_owned());
        }
        assert_eq!(network.refusals_since(before), ["b", "c"]);
        assert_eq!(network.refusals_since(0), ["a", "b", "c"]);
        assert!(network.refusals_since(network.refusal_count()).is_empty());
        (0..100).for_each(|number| network.clone().add_refusal(number.to_string()));
        assert_eq!(network.refusals_since(0).len(), MAX_KEPT);
        assert_eq!(network.refusals_since(0).last().map(String::as_str), Some("99"));
    }
}
