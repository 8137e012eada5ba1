//! Who uses a sandbox, and since when nobody does: so that one that is not used can be paused and put away, and no call finds it
//! so.
//!
//! A call is a visit. While there is one, no pause and no end is decided on, and both are under the lock under which visits begin.
//! From when a pause is decided on until it was taken back, no call runs: each first has what may stand still go on. Whoever does
//! either has the turn ([`SandboxUsage::pause_lock`]), so a call that comes while a pause is under way waits for it.
//!
//! State: how many use it, and whether it stands still, in memory. It goes with the sandbox.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use tokio::sync::Notify;

/// Nobody leaves a sandbox before somebody came, for so long: whoever had it made is on the way.
const FIRST_CALL_GRACE: Duration = Duration::from_secs(30);

/// A pause that failed is not tried again before so long.
const PAUSE_RETRY_DELAY: Duration = Duration::from_secs(30);

/// What becomes of a sandbox that nobody uses. `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdlePolicy {
    /// When it is paused.
    pub(crate) pause_after: Option<Duration>,
    /// When it is put away, paused or not.
    pub(crate) unused_after: Option<Duration>,
}

/// The use that is made of one sandbox.
#[derive(Debug)]
pub(crate) struct SandboxUsage {
    idle_policy: IdlePolicy,
    state: Mutex<UsageState>,
    /// Held by whoever pauses or resumes it. Nobody who does not use it waits for this.
    pub(super) pause_lock: tokio::sync::Mutex<()>,
    /// Told when the last one leaves, and when it goes on.
    changed: Notify,
}

#[derive(Debug)]
struct UsageState {
    users: usize,
    pause_state: PauseState,
    /// Whether it is tried to pause it.
    pause_support: PauseSupport,
    /// When nobody will have used it for long enough to pause it, unless somebody comes.
    pause_at: Deadline,
    /// And to put it away.
    unused_at: Deadline,
    has_ended: bool,
}

/// Whether what runs in a sandbox stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseState {
    /// It does not.
    Running,
    /// It may, and nobody runs anything in it: somebody is about to pause or resume it, or did not get to the end of that.
    Transition,
    /// It does, and nobody runs anything in it.
    Paused,
}

/// Whether a sandbox can be paused, as far as it was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseSupport {
    Possible,
    Unsupported,
}

/// What is due of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// Nobody has used it for long enough to pause it.
    Pause,
    /// It was paused, and goes on.
    Resumed,
    /// Nobody has used it for long enough to put it away.
    Stop,
}

impl UsageState {
    /// What is due next of one that nobody uses, and when.
    fn next(&self) -> (Deadline, IdleAction) {
        let is_pause =
            self.pause_state != PauseState::Paused && self.pause_at.min(self.unused_at) != self.unused_at;
        if is_pause { (self.pause_at, IdleAction::Pause) } else { (self.unused_at, IdleAction::Stop) }
    }
}

impl SandboxUsage {
    pub(crate) fn new(idle_policy: IdlePolicy) -> Self {
        let at = |after: Option<Duration>| {
            after.map_or(Deadline::NEVER, |after| SystemClock.deadline(after.max(FIRST_CALL_GRACE)))
        };
        let state = UsageState {
            users: 0,
            pause_state: PauseState::Running,
            pause_support: PauseSupport::Possible,
            pause_at: at(idle_policy.pause_after),
            unused_at: at(idle_policy.unused_after),
            has_ended: false,
        };
        Self {
            idle_policy,
            state: Mutex::new(state),
            pause_lock: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, UsageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody may use it any more.
    pub(super) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Whether nothing stands still in it. While somebody uses it, that stays so.
    pub(super) fn is_running(&self) -> bool {
        self.state().pause_state == PauseState::Running
    }

    /// Returns when something is due. A pause that is due is decided on: no call that comes from then on runs before it has
    /// taken it back. `known_state`: how it rests as far as whoever asks knows.
    pub(super) async fn next_action(&self, known_state: PauseState) -> IdleAction {
        loop {
            let next = {
                let mut state = self.state();
                if known_state == PauseState::Paused && state.pause_state != PauseState::Paused {
                    return IdleAction::Resumed;
                }
                if state.users > 0 {
                    None
                } else {
                    let (at, due) = state.next();
                    if SystemClock.remaining(at).is_zero() {
                        if due == IdleAction::Pause {
                            state.pause_state = PauseState::Transition;
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
    pub(super) fn set_pause_state(&self, pause_state: PauseState) {
        self.state().pause_state = pause_state;
        self.changed.notify_one();
    }

    /// It was not paused: it is tried again when it was not used for as long again, and for some time at least.
    pub(super) fn delay_pause(&self) {
        if let Some(after) = self.idle_policy.pause_after {
            self.state().pause_at = SystemClock.deadline(after.max(PAUSE_RETRY_DELAY));
        }
    }

    /// It cannot be paused, and is not tried again.
    pub(super) fn disable_pause(&self) {
        let mut state = self.state();
        (state.pause_state, state.pause_support, state.pause_at) =
            (PauseState::Running, PauseSupport::Unsupported, Deadline::NEVER);
    }

    /// Nobody may use it any more: unless somebody did meanwhile, or does.
    pub(super) fn try_end(&self) -> bool {
        let mut state = self.state();
        state.has_ended = state.users == 0 && SystemClock.remaining(state.unused_at).is_zero();
        state.has_ended
    }

    /// It is of use for as long again.
    pub(super) fn extend(&self) {
        if let Some(after) = self.idle_policy.unused_after {
            self.state().unused_at = SystemClock.deadline(after);
        }
    }

    /// Counts one more user. Returns false when the sandbox has been stopped as idle.
    pub(super) fn try_acquire(&self) -> bool {
        let mut state = self.state();
        if !state.has_ended {
            state.users += 1;
        }
        !state.has_ended
    }

    pub(super) fn release(&self) {
        let mut state = self.state();
        state.users -= 1;
        let is_watched = self.idle_policy.pause_after.or(self.idle_policy.unused_after).is_some();
        if state.users > 0 || !is_watched {
            return;
        }
        if let Some(after) = self.idle_policy.unused_after {
            state.unused_at = SystemClock.deadline(after);
        }
        if let Some(after) =
            self.idle_policy.pause_after.filter(|_| state.pause_support == PauseSupport::Possible)
        {
            state.pause_at = SystemClock.deadline(after);
        }
        self.changed.notify_one();
    }
}
