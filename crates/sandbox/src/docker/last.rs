//! How long those wait for an engine who remove a container without a runtime, when it is dropped: all of them together.
//!
//! State: what is left of that time, for each engine. It is whole again as soon as the engine has removed a container.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// All of it. What an engine is making is waited for as long.
const WHOLE: Duration = Duration::from_secs(10);

/// How long an engine may take for one answer.
const ONE: Duration = Duration::from_secs(3);

/// What is left of the patience with an engine.
#[derive(Debug)]
pub(super) struct LastPatience {
    left: Mutex<Duration>,
}

impl Default for LastPatience {
    fn default() -> Self {
        Self { left: Mutex::new(WHOLE) }
    }
}

impl LastPatience {
    /// How long the next answer may take; `None` when it need not be asked for.
    pub(super) fn share(&self) -> Option<Duration> {
        let left = *self.left.lock().unwrap_or_else(PoisonError::into_inner);
        (!left.is_zero()).then(|| left.min(ONE))
    }

    /// Somebody has waited so long.
    pub(super) fn spend(&self, time: Duration) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(time);
    }

    /// The engine does not answer, and nobody else need find out.
    pub(super) fn lose(&self) {
        self.spend(WHOLE);
    }

    /// It does what it is asked for.
    pub(super) fn restore(&self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = WHOLE;
    }
}
