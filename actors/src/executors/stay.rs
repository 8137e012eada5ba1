//! Who uses a sandbox, and since when nobody does: so that one that is not used can be put away, and no call finds it gone.
//!
//! State: how many use it, in memory. It goes with the sandbox.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use tokio::sync::Notify;

use super::berth::Occupant;

/// Nobody leaves a sandbox before somebody came, for so long: whoever had it made is on the way.
const AWAITED: Duration = Duration::from_secs(30);

/// The use that is made of one sandbox.
#[derive(Debug)]
pub(crate) struct Stay {
    /// How long it stays when nobody uses it; `None`: for ever.
    after: Option<Duration>,
    state: Mutex<State>,
    /// Told when the last one leaves.
    left: Notify,
}

#[derive(Debug)]
struct State {
    visitors: usize,
    /// When nobody will have used it for long enough, unless somebody comes.
    unused_at: Deadline,
    is_over: bool,
}

/// Somebody uses a sandbox until this is dropped.
pub(crate) struct Visit {
    occupant: Arc<Occupant>,
}

impl Stay {
    pub(crate) fn new(after: Option<Duration>) -> Self {
        let unused_at = after.map_or(Deadline::NEVER, |after| SystemClock.deadline(after.max(AWAITED)));
        let state = Mutex::new(State { visitors: 0, unused_at, is_over: false });
        Self { after, state, left: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody may use it any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Returns when nobody has used it for long enough.
    pub(super) async fn unused(&self) {
        loop {
            let unused_at = {
                let state = self.state();
                (state.visitors == 0).then_some(state.unused_at)
            };
            match unused_at {
                None => self.left.notified().await,
                Some(at) if SystemClock.remaining(at).is_zero() => return,
                // Somebody who left may have made it earlier.
                Some(at) => tokio::select! {
                    biased;
                    () = self.left.notified() => {}
                    () = SystemClock.sleep_until(at) => {}
                },
            }
        }
    }

    /// Nobody may use it any more: unless somebody did meanwhile, or does.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state();
        state.is_over = state.visitors == 0 && SystemClock.remaining(state.unused_at).is_zero();
        state.is_over
    }

    /// It is of use for as long again.
    pub(super) fn prolong(&self) {
        if let Some(after) = self.after {
            self.state().unused_at = SystemClock.deadline(after);
        }
    }

    fn leave(&self) {
        let mut state = self.state();
        state.visitors -= 1;
        if state.visitors == 0
            && let Some(after) = self.after
        {
            state.unused_at = SystemClock.deadline(after);
            self.left.notify_one();
        }
    }
}

impl Visit {
    /// Uses this sandbox; `None`: it is put away just now.
    pub(super) fn begin(occupant: Arc<Occupant>) -> Option<Self> {
        {
            let mut state = occupant.stay.state();
            if state.is_over {
                return None;
            }
            state.visitors += 1;
        }
        Some(Self { occupant })
    }

    pub(super) const fn occupant(&self) -> &Arc<Occupant> {
        &self.occupant
    }
}

impl Deref for Visit {
    type Target = Occupant;

    fn deref(&self) -> &Occupant {
        &self.occupant
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.occupant.stay.leave();
    }
}
