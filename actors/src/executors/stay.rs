//! Who uses a sandbox, and since when nobody does: so that one that is not used can be paused and put away, and no call finds it
//! so.
//!
//! A call is a visit. While there is one, no pause and no end is decided on, and both are under the lock under which visits begin.
//! From when a pause is decided on until it was taken back, no call runs: each first has what may stand still go on. Whoever does
//! either has the turn ([`Stay::turn`]), so a call that comes while a pause is under way waits for it.
//!
//! State: how many use it, and whether it stands still, in memory. It goes with the sandbox.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use tokio::sync::Notify;

use super::berth::Occupant;

/// Nobody leaves a sandbox before somebody came, for so long: whoever had it made is on the way.
const AWAITED: Duration = Duration::from_secs(30);

/// A pause that failed is not tried again before so long.
const TRIED_AGAIN: Duration = Duration::from_secs(30);

/// What becomes of a sandbox that nobody uses. `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idling {
    /// When it is paused.
    pub(crate) pause_after: Option<Duration>,
    /// When it is put away, paused or not.
    pub(crate) unused_after: Option<Duration>,
}

/// The use that is made of one sandbox.
#[derive(Debug)]
pub(crate) struct Stay {
    idling: Idling,
    state: Mutex<State>,
    /// Held by whoever pauses or resumes it. Nobody who does not use it waits for this.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Told when the last one leaves, and when it goes on.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    visitors: usize,
    rest: Rest,
    /// Whether it is tried to pause it.
    pausing: Pausing,
    /// When nobody will have used it for long enough to pause it, unless somebody comes.
    pause_at: Deadline,
    /// And to put it away.
    unused_at: Deadline,
    is_over: bool,
}

/// Whether what runs in a sandbox stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It does not.
    Awake,
    /// It may, and nobody runs anything in it: somebody is about to pause or resume it, or did not get to the end of that.
    Unsettled,
    /// It does, and nobody runs anything in it.
    Paused,
}

/// Whether a sandbox can be paused, as far as it was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pausing {
    Tried,
    RuledOut,
}

/// What is due of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nobody has used it for long enough to pause it.
    Pause,
    /// It was paused, and goes on.
    Awake,
    /// Nobody has used it for long enough to put it away.
    PutAway,
}

/// Somebody uses a sandbox until this is dropped.
pub(crate) struct Visit {
    occupant: Arc<Occupant>,
}

impl State {
    /// What is due next of one that nobody uses, and when.
    fn next(&self) -> (Deadline, Due) {
        let is_pause = self.rest != Rest::Paused && self.pause_at.earlier(self.unused_at) != self.unused_at;
        if is_pause { (self.pause_at, Due::Pause) } else { (self.unused_at, Due::PutAway) }
    }
}

impl Stay {
    pub(crate) fn new(idling: Idling) -> Self {
        let at = |after: Option<Duration>| {
            after.map_or(Deadline::NEVER, |after| SystemClock.deadline(after.max(AWAITED)))
        };
        let state = State {
            visitors: 0,
            rest: Rest::Awake,
            pausing: Pausing::Tried,
            pause_at: at(idling.pause_after),
            unused_at: at(idling.unused_after),
            is_over: false,
        };
        Self { idling, state: Mutex::new(state), turn: tokio::sync::Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody may use it any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Whether nothing stands still in it. While somebody uses it, that stays so.
    pub(super) fn is_awake(&self) -> bool {
        self.state().rest == Rest::Awake
    }

    /// Returns when something is due. A pause that is due is decided on: no call that comes from then on runs before it has
    /// taken it back. `known`: how it rests as far as whoever asks knows.
    pub(super) async fn due(&self, known: Rest) -> Due {
        loop {
            let next = {
                let mut state = self.state();
                if known == Rest::Paused && state.rest != Rest::Paused {
                    return Due::Awake;
                }
                if state.visitors > 0 {
                    None
                } else {
                    let (at, due) = state.next();
                    if SystemClock.remaining(at).is_zero() {
                        if due == Due::Pause {
                            state.rest = Rest::Unsettled;
                        }
                        return due;
                    }
                    Some(at)
                }
            };
            match next {
                None => self.changed.notified().await,
                // Somebody who left may have made it earlier.
                Some(at) => tokio::select! {
                    biased;
                    () = self.changed.notified() => {}
                    () = SystemClock.sleep_until(at) => {}
                },
            }
        }
    }

    /// It rests so, as whoever has the turn knows.
    pub(super) fn settle(&self, rest: Rest) {
        self.state().rest = rest;
        self.changed.notify_one();
    }

    /// It was not paused: it is tried again when it was not used for as long again, and for some time at least.
    pub(super) fn put_pause_off(&self) {
        if let Some(after) = self.idling.pause_after {
            self.state().pause_at = SystemClock.deadline(after.max(TRIED_AGAIN));
        }
    }

    /// It cannot be paused, and is not tried again.
    pub(super) fn rule_pause_out(&self) {
        let mut state = self.state();
        (state.rest, state.pausing, state.pause_at) = (Rest::Awake, Pausing::RuledOut, Deadline::NEVER);
    }

    /// Nobody may use it any more: unless somebody did meanwhile, or does.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state();
        state.is_over = state.visitors == 0 && SystemClock.remaining(state.unused_at).is_zero();
        state.is_over
    }

    /// It is of use for as long again.
    pub(super) fn prolong(&self) {
        if let Some(after) = self.idling.unused_after {
            self.state().unused_at = SystemClock.deadline(after);
        }
    }

    fn leave(&self) {
        let mut state = self.state();
        state.visitors -= 1;
        let is_watched = self.idling.pause_after.or(self.idling.unused_after).is_some();
        if state.visitors > 0 || !is_watched {
            return;
        }
        if let Some(after) = self.idling.unused_after {
            state.unused_at = SystemClock.deadline(after);
        }
        if let Some(after) = self.idling.pause_after.filter(|_| state.pausing == Pausing::Tried) {
            state.pause_at = SystemClock.deadline(after);
        }
        self.changed.notify_one();
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
