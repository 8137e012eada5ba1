//! [`DropTimeBudget`]: the total time that all removals in `Drop`, without a runtime, may wait for one engine.
//!
//! One such wait and two more requests detect an engine that hangs. As long as an engine keeps removing containers,
//! removals keep waiting for it.
//!
//! State: the remaining time for each engine. It is restored as soon as the engine has removed a container.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::lock;

/// The whole budget. It is also the longest wait for a container that the engine is still creating.
const TOTAL: Duration = Duration::from_secs(10);

/// The maximum timeout of one request.
const PER_REQUEST: Duration = Duration::from_secs(3);

/// The minimum timeout of one request, however little of the budget remains. An engine that takes longer counts as
/// hanging.
const SHORTEST_REQUEST: Duration = Duration::from_secs(1);

/// The remaining time for one engine.
#[derive(Debug)]
pub(crate) struct DropTimeBudget {
    remaining: Mutex<DropBudgetState>,
}

#[derive(Debug)]
struct DropBudgetState {
    time: Duration,
    /// Whether the engine seems to hang. Then no further request is made.
    is_lost: bool,
}

impl DropBudgetState {
    const TOTAL: Self = Self { time: TOTAL, is_lost: false };
}

/// Whether the removal of this container was requested before.
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
    /// The timeout of the next request; `None` when no request should be made. Each container gets at least one
    /// request, unless the engine hangs.
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

    /// Subtracts the time of a request that the engine answered.
    pub(crate) fn spend(&self, time: Duration) {
        let mut remaining = self.remaining();
        remaining.time = remaining.time.saturating_sub(time);
    }

    /// Subtracts the time of a request without an answer.
    pub(crate) fn spend_on_silence(&self, time: Duration) {
        let mut remaining = self.remaining();
        remaining.time = remaining.time.saturating_sub(time);
        remaining.is_lost = remaining.time.is_zero();
    }

    /// Records that the engine does not answer. No further request is made.
    pub(crate) fn lose(&self) {
        self.remaining().is_lost = true;
    }

    /// Restores the whole budget, because the engine works.
    pub(crate) fn restore(&self) {
        *self.remaining() = DropBudgetState::TOTAL;
    }

    fn remaining(&self) -> MutexGuard<'_, DropBudgetState> {
        lock(&self.remaining)
    }
}
