//! How long those wait for an engine who remove a container without a runtime, when it is dropped: all of them together.
//!
//! An engine that hangs is found out within one such wait, and two questions more. One that removes what it is asked to is waited
//! for as long as it goes on with that.
//!
//! State: what is left of that time, for each engine. It is whole again as soon as the engine has removed a container.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// All of it. What an engine is making is waited for as long.
const WHOLE: Duration = Duration::from_secs(10);

/// How long an engine may take for one answer.
const ONE: Duration = Duration::from_secs(3);

/// What is left of the patience with an engine.
#[derive(Debug)]
pub(super) struct LastPatience {
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    time: Duration,
    /// It hangs, as far as is known: it is asked no more.
    is_lost: bool,
}

impl Left {
    const WHOLE: Self = Self { time: WHOLE, is_lost: false };
}

/// Whether an engine was asked to remove a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Never,
    Before,
}

impl Default for LastPatience {
    fn default() -> Self {
        Self { left: Mutex::new(Left::WHOLE) }
    }
}

impl LastPatience {
    /// How long the next answer may take; `None` when it need not be asked for. For each container an engine is asked once, unless it
    /// hangs.
    pub(super) fn share(&self, asked: Asked) -> Option<Duration> {
        let left = self.left();
        let may_ask = !left.is_lost && (asked == Asked::Never || !left.time.is_zero());
        // There is no wait of no time.
        may_ask.then(|| if left.time.is_zero() { ONE } else { left.time.min(ONE) })
    }

    /// Somebody has waited so long for an engine that answers.
    pub(super) fn spend(&self, time: Duration) {
        let mut left = self.left();
        left.time = left.time.saturating_sub(time);
    }

    /// Somebody has waited so long without an answer.
    pub(super) fn spend_on_silence(&self, time: Duration) {
        let mut left = self.left();
        left.time = left.time.saturating_sub(time);
        left.is_lost = left.time.is_zero();
    }

    /// The engine does not answer, and nobody else need find out.
    pub(super) fn lose(&self) {
        self.left().is_lost = true;
    }

    /// It does what it is asked for.
    pub(super) fn restore(&self) {
        *self.left() = Left::WHOLE;
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
