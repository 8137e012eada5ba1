//! [`SandboxNetwork`]: a handle to the network of a sandbox. Its owner reads which connections were refused, and
//! begins the start-up.
//!
//! State, in memory: the last refusals, their total number, and whether the program is starting up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use conjure_base::lock;

/// The maximum number of kept refusals.
const MAX_KEPT: usize = 16;

/// The refused connections of a sandbox, and whether its program is starting up. During the start-up, it may also
/// reach [`ExecutionContext::startup_network`]. Clones share the state; two handles are equal if they share it.
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
    /// The last refusals, with their numbers.
    last: VecDeque<(u64, String)>,
}

impl SandboxNetwork {
    /// A handle without refusals, for a program that is not starting up.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the start-up: until the guard is dropped, new connections may also reach the network of the start-up.
    /// Connections that are still open then continue.
    #[must_use = "the start-up ends when this is dropped"]
    pub fn begin_startup(&self) -> StartupGuard {
        self.0.is_starting_up.store(true, Ordering::Release);
        StartupGuard(self.clone())
    }

    /// Whether the program is starting up now.
    #[must_use]
    pub fn is_starting_up(&self) -> bool {
        self.0.is_starting_up.load(Ordering::Acquire)
    }

    /// Records a refusal: host, port and reason.
    pub fn add_refusal(&self, refusal: String) {
        let mut refusals = lock(&self.0.refusals);
        refusals.count += 1;
        let number = refusals.count;
        refusals.last.push_back((number, refusal));
        if refusals.last.len() > MAX_KEPT {
            refusals.last.pop_front();
        }
    }

    /// The total number of refusals.
    #[must_use]
    pub fn refusal_count(&self) -> u64 {
        lock(&self.0.refusals).count
    }

    /// The refusals after the first `count`, each text once. If there were too many, the oldest ones are missing.
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

/// The start-up of a program. It ends when this is dropped.
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
