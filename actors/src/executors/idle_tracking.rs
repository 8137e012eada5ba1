//! Counts the users of a sandbox and its idle time, so that an idle sandbox can be paused and stopped without disturbing a call.
//!
//! While a call uses the sandbox, neither a pause nor a stop is decided. Both are decided under the lock under which
//! uses begin. From the decision to pause until the sandbox has resumed, no call runs: each call first resumes what may
//! be paused. Pausing and resuming hold the [`SandboxUsage::pause_lock`], so a call that comes during a pause waits for
//! it.
//!
//! State: the number of users, and whether the sandbox is paused, in memory. It ends with the sandbox.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, lock};
use tokio::sync::Notify;

/// A new sandbox does not count as idle for this long, because the caller that had it created is about to use it.
const FIRST_CALL_GRACE: Duration = Duration::from_secs(30);

/// A failed pause is not tried again before this time.
const PAUSE_RETRY_DELAY: Duration = Duration::from_secs(30);

/// When an idle sandbox is paused and stopped. `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdlePolicy {
    /// When it is paused.
    pub(crate) pause_after: Option<Duration>,
    /// When it is stopped, paused or not.
    pub(crate) unused_after: Option<Duration>,
}

/// The use of one sandbox.
#[derive(Debug)]
pub(crate) struct SandboxUsage {
    idle_policy: IdlePolicy,
    state: Mutex<UsageState>,
    /// Held while the sandbox is paused or resumed. Only its users wait for this lock.
    pub(super) pause_lock: tokio::sync::Mutex<()>,
    /// Notified when the last user leaves, and when the sandbox resumes.
    changed: Notify,
}

#[derive(Debug)]
struct UsageState {
    users: usize,
    pause_state: PauseState,
    /// Whether pausing is tried.
    pause_support: PauseSupport,
    /// When the sandbox will have been idle for long enough to be paused.
    pause_at: Deadline,
    /// When it will have been idle for long enough to be stopped.
    unused_at: Deadline,
    has_ended: bool,
}

/// Whether the processes in a sandbox are paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseState {
    /// They run.
    Running,
    /// Unknown, and no call runs: a pause or a resume is in progress, or was interrupted.
    Transition,
    /// They are paused, and no call runs.
    Paused,
}

/// Whether a sandbox can be paused, as far as it was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseSupport {
    Possible,
    Unsupported,
}

/// The action that is due for an idle sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// It was idle for long enough to be paused.
    Pause,
    /// It was paused and has resumed.
    Resumed,
    /// It was idle for long enough to be stopped.
    Stop,
}

impl UsageState {
    /// The next action for an idle sandbox, and its time.
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
        lock(&self.state)
    }

    /// Whether the sandbox can no longer be used.
    pub(super) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Whether nothing in the sandbox is paused. This stays so while the sandbox has a user.
    pub(super) fn is_running(&self) -> bool {
        self.state().pause_state == PauseState::Running
    }

    /// Returns when an action is due. A due pause is decided here: calls that come later first resume the sandbox.
    /// `known_state` is the state that the caller knows.
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
                // A user that left may have set an earlier time.
                Some(at) => tokio::select! {
                    biased;
                    () = self.changed.notified() => {}
                    () = SystemClock.sleep_until(at) => {}
                },
            }
        }
    }

    /// Sets the state; the caller holds the pause lock.
    pub(super) fn set_pause_state(&self, pause_state: PauseState) {
        self.state().pause_state = pause_state;
        self.changed.notify_one();
    }

    /// Delays the next pause after a failed one: by the idle time, but at least by a minimum.
    pub(super) fn delay_pause(&self) {
        if let Some(after) = self.idle_policy.pause_after {
            self.state().pause_at = SystemClock.deadline(after.max(PAUSE_RETRY_DELAY));
        }
    }

    /// Stops trying to pause the sandbox, because it does not support that.
    pub(super) fn disable_pause(&self) {
        let mut state = self.state();
        (state.pause_state, state.pause_support, state.pause_at) =
            (PauseState::Running, PauseSupport::Unsupported, Deadline::NEVER);
    }

    /// Ends the use of the sandbox, unless it was used meanwhile.
    pub(super) fn try_end(&self) -> bool {
        let mut state = self.state();
        state.has_ended = state.users == 0 && SystemClock.remaining(state.unused_at).is_zero();
        state.has_ended
    }

    /// Starts the idle time again.
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
