//! [`DropTimeBudget`]: the time that all removals in `Drop`, without a runtime, may wait for one engine together.
//!
//! One such wait and two more requests detect an engine that hangs. An engine that removes containers is waited for as
//! long as it keeps removing.
//!
//! State: the remaining time for each engine. It is restored as soon as the engine has removed a container.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::lock;

/// The whole budget. A container that the engine is creating is waited for as long.
const TOTAL: Duration = Duration::from_secs(10);

/// The longest time of one request.
const PER_REQUEST: Duration = Duration::from_secs(3);

/// The shortest time of one request: an engine that answers later hangs, however little of the budget is left.
const SHORTEST_REQUEST: Duration = Duration::from_secs(1);

/// The remaining time for one engine.
#[derive(Debug)]
pub(crate) struct DropTimeBudget {
    remaining: Mutex<DropBudgetState>,
}

#[derive(Debug)]
struct DropBudgetState {
    time: Duration,
    /// The engine hangs, as far as is known: no further request is made.
    is_lost: bool,
}

impl DropBudgetState {
    const TOTAL: Self = Self { time: TOTAL, is_lost: false };
}

/// Whether the engine was asked to remove this container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalRequested {
    Never,
    Before,
}

impl Default for DropTimeBudget {
    fn default() -> Self {
        Self { remaining: Mutex::new(DropBudgetState::TOTAL) }
    }
}

impl DropTimeBudget {
    /// The timeout of the next request; `None` when there should be none. For each container the engine is asked once,
    /// unless it hangs.
    pub(crate) fn share(&self, asked: RemovalRequested) -> Option<Duration> {
        let remaining = self.remaining();
        let may_ask = !remaining.is_lost && (asked == RemovalRequested::Never || !remaining.time.is_zero());
        may_ask.then(|| {
            if remaining.time.is_zero() {
                PER_REQUEST
            } else {
                remaining.time.clamp(SHORTEST_REQUEST, PER_REQUEST)
            }
        })
    }

    /// Takes the time of a request that the engine answered.
    pub(crate) fn spend(&self, time: Duration) {
        let mut remaining = self.remaining();
        remaining.time = remaining.time.saturating_sub(time);
    }

    /// Takes the time of a request without an answer.
    pub(crate) fn spend_on_silence(&self, time: Duration) {
        let mut remaining = self.remaining();
        remaining.time = remaining.time.saturating_sub(time);
        remaining.is_lost = remaining.time.is_zero();
    }

    /// The engine does not answer: stops all further requests.
    pub(crate) fn lose(&self) {
        self.remaining().is_lost = true;
    }

    /// The engine works: restores the whole budget.
    pub(crate) fn restore(&self) {
        *self.remaining() = DropBudgetState::TOTAL;
    }

    fn remaining(&self) -> MutexGuard<'_, DropBudgetState> {
        lock(&self.remaining)
    }
}
