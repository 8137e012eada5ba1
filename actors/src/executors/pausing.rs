//! Pausing a sandbox that nobody uses, and having it go on for a call.
//!
//! State: none of its own; [`Stay`](super::stay::Stay) knows how the sandbox rests. What breaks off in between leaves it unsettled,
//! and the next call resumes it, which does no harm where nothing is paused.

use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{CallOptions, SandboxError, SandboxErrorKind};

use super::berth::Occupant;
use super::stay::{Rest, Visit};

/// How long a pause, or its taking back, may take: calls wait for it.
const WITHIN: Duration = Duration::from_secs(5);

/// What does not end then is given up after as long again.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Pauses a sandbox of which that was decided ([`Stay::due`](super::stay::Stay::due)), unless a call came in between. How it rests
/// then.
pub(super) async fn pause(occupant: &Occupant) -> Rest {
    let stay = &occupant.stay;
    // Where somebody has it, or had it and is done, a call was faster. One that waits for it has not begun.
    let Ok(_turn) = stay.turn.try_lock() else { return Rest::Awake };
    if stay.is_awake() {
        return Rest::Awake;
    }
    let Err(error) = bounded(occupant.executor.pause(options())).await else {
        stay.settle(Rest::Paused);
        return Rest::Paused;
    };
    if error.kind() == SandboxErrorKind::Unsupported {
        tracing::debug!(%error, "a sandbox that nobody uses cannot be paused");
        stay.rule_pause_out();
        return Rest::Awake;
    }
    stay.put_pause_off();
    // Of one that has ended, whoever watches hears.
    if error.kind() != SandboxErrorKind::Lost {
        tracing::warn!(%error, "a sandbox that nobody uses was not paused, and goes on");
        match bounded(occupant.executor.resume(options())).await {
            Ok(()) => stay.settle(Rest::Awake),
            Err(error) => {
                tracing::warn!(%error, "what may stand still in a sandbox is left to its next call")
            }
        }
    }
    Rest::Awake
}

fn options() -> CallOptions {
    CallOptions::until(SystemClock.deadline(WITHIN))
}

/// An executor of a host's own may not keep to its deadline.
async fn bounded(work: impl Future<Output = Result<(), SandboxError>>) -> Result<(), SandboxError> {
    tokio::select! {
        biased;
        done = work => done,
        () = SystemClock.sleep_until(SystemClock.deadline(GIVEN_UP)) => {
            Err(SandboxError::new(SandboxErrorKind::TimedOut, "the executor did not say how it went"))
        }
    }
}

impl Visit {
    /// Has all go on in the sandbox, where it may stand still. Dropping the future leaves it to the next call.
    ///
    /// # Errors
    /// When it does not go on, within the bounds of the call; `Lost` when it has ended.
    pub(super) async fn wake(&self, options: &CallOptions) -> Result<(), SandboxError> {
        let stay = &self.stay;
        if stay.is_awake() {
            return Ok(());
        }
        let _turn = stay.turn.lock().await;
        // Another call may have seen to it.
        if stay.is_awake() {
            return Ok(());
        }
        stay.settle(Rest::Unsettled);
        self.follow(self.executor.resume(options.clone())).await?;
        stay.settle(Rest::Awake);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
