//! A sandbox that serves calls, the guard that a call holds while it uses one, and pausing it between calls.
//!
//! A pause that breaks off leaves the state [`PauseState::Transition`]. The next call resumes the sandbox then, which is harmless
//! where nothing is paused.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{CallOptions, Executor, SandboxError, SandboxErrorKind};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::usage::{PauseState, SandboxUsage};

/// How long a pause, or its taking back, may take: calls wait for it.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What does not end then is given up after as long again.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(10);

/// A sandbox that serves calls.
pub(crate) struct LiveSandbox {
    pub(crate) executor: Arc<dyn Executor>,
    pub(super) usage: SandboxUsage,
    /// Something was done in it, so that something is gone when it is lost.
    is_used: AtomicBool,
    /// Cancelled when it serves no calls any more, for the reason that was set before.
    ended_token: CancellationToken,
    reason: OnceLock<SandboxError>,
    /// Cancelled when a call found it lost, for the reason that was set before.
    found_lost: CancellationToken,
}

/// Somebody uses a sandbox until this is dropped.
pub(crate) struct UseGuard {
    sandbox: Arc<LiveSandbox>,
}

impl LiveSandbox {
    pub(super) fn new(executor: Arc<dyn Executor>, usage: SandboxUsage) -> Self {
        Self {
            executor,
            usage,
            is_used: AtomicBool::new(false),
            ended_token: CancellationToken::new(),
            reason: OnceLock::new(),
            found_lost: CancellationToken::new(),
        }
    }

    /// Whether a call ever ran in it, so that something is lost with it.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Ends all calls that run in it, and refuses further ones, for this reason.
    pub(super) fn end(&self, reason: SandboxError) {
        let _ = self.reason.set(reason);
        self.ended_token.cancel();
    }

    /// Whether it has not ended, as far as anybody knows.
    pub(super) fn is_live(&self) -> bool {
        !self.ended_token.is_cancelled()
            && !self.usage.has_ended()
            && !self.found_lost.is_cancelled()
            && self.executor.wait_ended().now_or_never().is_none()
    }

    /// Follows a call in it: one that does not end with its sandbox is ended here.
    pub(crate) async fn run_call<T>(
        &self,
        call: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        self.is_used.store(true, Ordering::Release);
        tokio::select! {
            biased;
            result = call => result.inspect_err(|error| self.check_error(error)),
            lost = self.lost() => Err(lost),
        }
    }

    /// A sandbox that cannot tell its own end is found out by its calls.
    pub(crate) fn check_error(&self, error: &SandboxError) {
        if error.kind() == SandboxErrorKind::Lost {
            let _ = self.reason.set(error.clone());
            self.found_lost.cancel();
        }
    }

    /// Resolves when it serves no calls any more.
    pub(crate) async fn lost(&self) -> SandboxError {
        self.ended_token.cancelled().await;
        self.reason()
    }

    /// Resolves when it has ended, by its own word or by what a call found.
    pub(crate) async fn ended(&self) -> SandboxError {
        tokio::select! {
            biased;
            reason = self.executor.wait_ended() => reason,
            () = self.found_lost.cancelled() => self.reason(),
        }
    }

    fn reason(&self) -> SandboxError {
        let reason = self.reason.get().cloned();
        reason.unwrap_or_else(|| SandboxError::new(SandboxErrorKind::Lost, "the sandbox was lost"))
    }
}

impl UseGuard {
    /// Uses this sandbox; `None`: it is put away just now.
    pub(super) fn acquire(sandbox: Arc<LiveSandbox>) -> Option<Self> {
        sandbox.usage.try_acquire().then(|| Self { sandbox })
    }

    pub(super) const fn sandbox(&self) -> &Arc<LiveSandbox> {
        &self.sandbox
    }
}

impl Deref for UseGuard {
    type Target = LiveSandbox;

    fn deref(&self) -> &LiveSandbox {
        &self.sandbox
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.sandbox.usage.release();
    }
}

impl UseGuard {
    /// Has all go on in the sandbox, where it may stand still. Dropping the future leaves it to the next call.
    ///
    /// # Errors
    /// When it does not go on, within the bounds of the call; `Lost` when it has ended.
    pub(super) async fn resume(&self, options: &CallOptions) -> Result<(), SandboxError> {
        let usage = &self.usage;
        if usage.is_running() {
            return Ok(());
        }
        let _turn = usage.pause_lock.lock().await;
        // Another call may have seen to it.
        if usage.is_running() {
            return Ok(());
        }
        usage.set_pause_state(PauseState::Transition);
        self.run_call(self.executor.resume(options.clone())).await?;
        usage.set_pause_state(PauseState::Running);
        Ok(())
    }
}

/// Pauses a sandbox of which that was decided ([`SandboxUsage::due`](super::usage::Stay::due)), unless a call came in between. How it rests
/// then.
pub(super) async fn pause(sandbox: &LiveSandbox) -> PauseState {
    let usage = &sandbox.usage;
    // Where somebody has it, or had it and is done, a call was faster. One that waits for it has not begun.
    let Ok(_turn) = usage.pause_lock.try_lock() else { return PauseState::Running };
    if usage.is_running() {
        return PauseState::Running;
    }
    let Err(error) = bounded(sandbox.executor.pause(options())).await else {
        usage.set_pause_state(PauseState::Paused);
        return PauseState::Paused;
    };
    if error.kind() == SandboxErrorKind::Unsupported {
        tracing::debug!(%error, "a sandbox that nobody uses cannot be paused");
        usage.disable_pause();
        return PauseState::Running;
    }
    usage.delay_pause();
    // Of one that has ended, whoever watches hears.
    if error.kind() != SandboxErrorKind::Lost {
        tracing::warn!(%error, "a sandbox that nobody uses was not paused, and goes on");
        match bounded(sandbox.executor.resume(options())).await {
            Ok(()) => usage.set_pause_state(PauseState::Running),
            Err(error) => {
                tracing::warn!(%error, "what may stand still in a sandbox is left to its next call")
            }
        }
    }
    PauseState::Running
}

fn options() -> CallOptions {
    CallOptions::until(SystemClock.deadline(PAUSE_TIMEOUT))
}

/// An executor of a host's own may not keep to its deadline.
async fn bounded(work: impl Future<Output = Result<(), SandboxError>>) -> Result<(), SandboxError> {
    tokio::select! {
        biased;
        done = work => done,
        () = SystemClock.sleep_until(SystemClock.deadline(ABANDON_TIMEOUT)) => {
            Err(SandboxError::new(SandboxErrorKind::TimedOut, "the executor did not say how it went"))
        }
    }
}

#[cfg(test)]
mod tests;
