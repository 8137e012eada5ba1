//! A sandbox that serves calls, the guard of a call that uses it, and pausing it between calls.
//!
//! A pause that is interrupted leaves the state [`PauseState::Transition`]. The next call then resumes the sandbox,
//! which is harmless if nothing is paused.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conjure_base::{Clock, SystemClock, with_deadline};
use conjure_sandbox::{CallOptions, Executor, SandboxError, SandboxErrorKind};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::idle_tracking::{PauseState, SandboxUsage};

/// How long a pause or its cancellation may take, since calls wait for it.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long interrupted work may then take to end before it is given up.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(10);

/// A sandbox that serves calls.
pub(crate) struct LiveSandbox {
    pub(crate) executor: Arc<dyn Executor>,
    pub(super) usage: SandboxUsage,
    /// Set if a call ran in the sandbox, so something may be lost with it.
    is_used: AtomicBool,
    /// Cancelled when the sandbox serves no more calls. The reason is set before.
    ended_token: CancellationToken,
    reason: OnceLock<SandboxError>,
    /// Cancelled when a call found the sandbox lost. The reason is set before.
    found_lost: CancellationToken,
}

/// Marks the sandbox as in use until it is dropped.
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

    /// Whether a call ever ran in the sandbox, so that something may be lost with it.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Ends all running calls and refuses new ones, with this reason.
    pub(super) fn end(&self, reason: SandboxError) {
        let _ = self.reason.set(reason);
        self.ended_token.cancel();
    }

    /// Whether the sandbox has not ended, as far as is known.
    pub(super) fn is_live(&self) -> bool {
        !self.ended_token.is_cancelled()
            && !self.usage.has_ended()
            && !self.found_lost.is_cancelled()
            && self.executor.wait_ended().now_or_never().is_none()
    }

    /// Runs a call. If the sandbox ends before the call does, the call ends as `Lost`.
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

    /// Detects from a call's error that the sandbox has ended, for sandboxes that do not report their own end.
    pub(crate) fn check_error(&self, error: &SandboxError) {
        if error.kind() == SandboxErrorKind::Lost {
            let _ = self.reason.set(error.clone());
            self.found_lost.cancel();
        }
    }

    /// Resolves when the sandbox serves no more calls.
    pub(crate) async fn lost(&self) -> SandboxError {
        self.ended_token.cancelled().await;
        self.reason()
    }

    /// Resolves when the sandbox has ended, by its own report or by a call's error.
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
    /// Marks the sandbox as in use; `None` if it is being stopped as idle.
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
    /// Resumes the sandbox if it may be paused. If the future is dropped, the next call resumes it.
    ///
    /// # Errors
    /// If the sandbox does not resume within the limits of the call; `Lost` if it has ended.
    pub(super) async fn resume(&self, options: &CallOptions) -> Result<(), SandboxError> {
        let usage = &self.usage;
        if usage.is_running() {
            return Ok(());
        }
        let _turn = usage.pause_lock.lock().await;
        // Another call may have resumed the sandbox.
        if usage.is_running() {
            return Ok(());
        }
        usage.set_pause_state(PauseState::Transition);
        self.run_call(self.executor.resume(options.clone())).await?;
        usage.set_pause_state(PauseState::Running);
        Ok(())
    }
}

/// Pauses the sandbox after [`SandboxUsage::next_action`](super::idle_tracking::SandboxUsage::next_action) decided that, unless
/// a call came in between. Returns the resulting state.
pub(super) async fn pause(sandbox: &LiveSandbox) -> PauseState {
    let usage = &sandbox.usage;
    // If the lock is held, or the sandbox runs again, a call was faster than this pause. A call that waits for the lock has not
    // begun.
    let Ok(_turn) = usage.pause_lock.try_lock() else { return PauseState::Running };
    if usage.is_running() {
        return PauseState::Running;
    }
    let Err(error) = bounded(sandbox.executor.pause(options())).await else {
        usage.set_pause_state(PauseState::Paused);
        return PauseState::Paused;
    };
    if error.kind() == SandboxErrorKind::Unsupported {
        tracing::debug!(%error, "an idle sandbox cannot be paused");
        usage.disable_pause();
        return PauseState::Running;
    }
    usage.delay_pause();
    // If the sandbox is lost, its watcher already knows.
    if error.kind() != SandboxErrorKind::Lost {
        tracing::warn!(%error, "an idle sandbox was not paused");
        match bounded(sandbox.executor.resume(options())).await {
            Ok(()) => usage.set_pause_state(PauseState::Running),
            Err(error) => {
                tracing::warn!(%error, "a sandbox may be paused; its next call resumes it")
            }
        }
    }
    PauseState::Running
}

fn options() -> CallOptions {
    CallOptions::until(SystemClock.deadline(PAUSE_TIMEOUT))
}

/// Runs work with a deadline, because an embedder's executor may not keep its own.
async fn bounded(work: impl Future<Output = Result<(), SandboxError>>) -> Result<(), SandboxError> {
    let done = with_deadline(&SystemClock, SystemClock.deadline(ABANDON_TIMEOUT), work).await;
    let late = |_| SandboxError::new(SandboxErrorKind::TimedOut, "the executor did not answer in time");
    done.map_err(late)?
}

#[cfg(test)]
mod tests;
