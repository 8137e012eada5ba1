//! The multiplexer, shared by calls and tasks, and the handle of a call on its channel.
//!
//! The lock is held only for memory operations, never across an await. Wakers are called after its release.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use conjure_base::{Clock, Deadline, lock};
use conjure_guest::protocol::{END_TIMEOUT, Frame, Open, Request};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use super::multiplexer::Event;
use super::multiplexer::Multiplexer;
pub(crate) use super::tunnels::TunnelPolicy;
use super::violation::Violation;
use crate::calls::call_options::CallOptions;
use crate::error::{SandboxError, SandboxErrorKind};

/// How long the guest may take beyond its limits. It applies to the answer after a deadline or a cancellation, and to
/// the end after its stream was closed.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

const _: () = assert!(
    GRACE.as_millis() >= END_TIMEOUT.as_millis() + 1000,
    "a sound guest needs its time, and its answer the way here, on a machine that is busy"
);

/// The state that calls and tasks of one sandbox share.
#[derive(Debug)]
pub(crate) struct SharedMux {
    state: Mutex<MuxState>,
    /// Wakes the supervisor when the sandbox has failed, or when there is an earlier deadline.
    attention: Notify,
    /// Cancelled when the sandbox has failed.
    closed: CancellationToken,
    /// Cancelled when nothing of the sandbox can change its workspace any more.
    workspace_released: CancellationToken,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct MuxState {
    multiplexer: Multiplexer,
    /// The deadline until which the supervisor sleeps.
    armed: Deadline,
}

impl SharedMux {
    pub(crate) fn new(clock: Arc<dyn Clock>, tunnel_policy: TunnelPolicy) -> Self {
        let multiplexer = Multiplexer::new(tunnel_policy);
        Self {
            state: Mutex::new(MuxState { multiplexer, armed: Deadline::NEVER }),
            attention: Notify::new(),
            closed: CancellationToken::new(),
            workspace_released: CancellationToken::new(),
            clock,
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn with<T>(&self, act: impl FnOnce(&mut MuxState) -> T) -> T {
        let (result, wakes) = {
            let mut state = lock(&self.state);
            let result = act(&mut state);
            (result, state.multiplexer.take_wakes())
        };
        for waker in wakes {
            waker.wake();
        }
        result
    }

    /// The reason of the failure, if the sandbox has failed.
    pub(crate) fn failure(&self) -> Option<SandboxError> {
        self.with(|state| state.multiplexer.failure().cloned())
    }

    /// Ends every call with this error, unless the sandbox has already failed.
    pub(crate) fn fail(&self, error: SandboxError) {
        self.with(|state| state.multiplexer.fail(error));
        self.attention.notify_one();
        self.closed.cancel();
    }

    /// Resolves with the reason once the sandbox has failed.
    pub(crate) async fn failed(&self) -> SandboxError {
        self.closed.cancelled().await;
        // The error is always set before the token is cancelled.
        self.failure().unwrap_or_else(|| SandboxError::new(SandboxErrorKind::Lost, "the sandbox was lost"))
    }

    /// Records that another sandbox may use the workspace now.
    pub(super) fn release_workspace(&self) {
        self.workspace_released.cancel();
    }

    /// Resolves once another sandbox may use the workspace.
    pub(crate) async fn workspace_released(&self) {
        self.workspace_released.cancelled().await;
    }

    /// Processes all complete frames of the decoder.
    pub(super) fn receive(
        &self,
        mut next: impl FnMut() -> Result<Option<Frame>, Violation>,
    ) -> Result<(), Violation> {
        self.with(|state| {
            while let Some(frame) = next()? {
                state.multiplexer.receive(frame)?;
            }
            Ok(())
        })
    }

    pub(super) fn poll_fill(&self, buffer: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
        self.with(|state| state.multiplexer.poll_fill(buffer, cx))
    }

    pub(super) fn on_tunnels<T>(&self, act: impl FnOnce(&mut Multiplexer) -> T) -> T {
        self.with(|state| act(&mut state.multiplexer))
    }

    /// Resolves when the supervisor must check again, at the latest at the deadline of [`SharedMux::next_deadline`].
    pub(super) async fn attention(&self) {
        self.attention.notified().await;
    }

    /// The earliest deadline of all calls, until which the supervisor sleeps.
    pub(super) fn next_deadline(&self) -> Deadline {
        self.with(|state| {
            state.armed =
                state.multiplexer.deadlines().fold(Deadline::NEVER, |earliest, next| earliest.min(next));
            state.armed
        })
    }

    fn watch(&self, state: &mut MuxState, deadline: Deadline) {
        if state.armed.min(deadline) != state.armed {
            state.armed = deadline;
            self.attention.notify_one();
        }
    }

    fn grace_deadline(&self) -> Deadline {
        self.clock.deadline(GRACE)
    }

    fn deadline_after(&self, deadline: Deadline, grace: Duration) -> Deadline {
        match self.clock.remaining(deadline) {
            Duration::MAX => Deadline::NEVER,
            rest => self.clock.deadline(rest.saturating_add(grace)),
        }
    }
}

/// A running operation. Dropping it cancels the operation.
#[derive(Debug)]
pub(crate) struct Call {
    link: Arc<SharedMux>,
    channel: u32,
    cancel: CancellationToken,
    cancelled: AtomicBool,
}

impl Call {
    /// Starts an operation, with a credit of `credit` bytes for the guest.
    ///
    /// # Errors
    /// If the sandbox is lost, the deadline has passed, the call is cancelled, or the request is too long.
    pub(crate) fn open(
        link: Arc<SharedMux>,
        request: Request,
        credit: u32,
        options: CallOptions,
    ) -> Result<Self, SandboxError> {
        let remaining = link.clock.remaining(options.deadline);
        if options.cancel.is_cancelled() {
            return Err(SandboxError::new(SandboxErrorKind::Cancelled, "it was cancelled before it began"));
        }
        if remaining.is_zero() {
            return Err(SandboxError::new(SandboxErrorKind::TimedOut, "its time was up before it began"));
        }
        // Rounded up: a timeout of half a millisecond must not become zero.
        let timeout_ms = (remaining != Duration::MAX)
            .then(|| u64::try_from(remaining.as_micros().div_ceil(1000)).unwrap_or(u64::MAX));
        let deadline = link.deadline_after(options.deadline, GRACE);
        let channel = link.with(|state| {
            let channel = state.multiplexer.open(&Open { request, credit, timeout_ms }, deadline)?;
            link.watch(state, deadline);
            Ok::<_, SandboxError>(channel)
        })?;
        Ok(Self { link, channel, cancel: options.cancel, cancelled: AtomicBool::new(false) })
    }

    /// Returns the next event. When the caller cancels, it forwards the cancellation to the guest, and still waits
    /// for the end.
    pub(crate) async fn next(&self) -> Event {
        let event = poll_fn(|cx| self.link.with(|state| state.multiplexer.poll_event(self.channel, cx)));
        tokio::pin!(event);
        if !self.cancelled.load(Ordering::Relaxed) {
            tokio::select! {
                biased;
                event = &mut event => return event,
                () = self.cancel.cancelled() => self.cancel(),
            }
        }
        event.await
    }

    /// Why the sandbox is lost; `None` if it is not.
    pub(crate) fn failure(&self) -> Option<SandboxError> {
        self.link.failure()
    }

    /// Grants the guest this many more bytes.
    pub(crate) fn grant(&self, bytes: u32) {
        self.link.with(|state| state.multiplexer.grant(self.channel, bytes));
    }

    /// Sends as much of the piece as the guest grants, as soon as it grants anything. The rest stays in `piece`, also
    /// if the future is dropped.
    pub(crate) async fn send(&self, piece: &mut Bytes) {
        poll_fn(|cx| self.link.with(|state| state.multiplexer.poll_send(self.channel, piece, cx))).await;
    }

    /// Marks the end of the content.
    pub(crate) fn finish(&self) {
        self.link.with(|state| state.multiplexer.finish(self.channel));
    }

    /// Cancels the operation; its `Done` still follows.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let deadline = self.link.grace_deadline();
        self.link.with(|state| {
            state.multiplexer.cancel(self.channel, deadline);
            self.link.watch(state, deadline);
        });
    }

    /// Marks the sandbox as lost. The guest sent something that the protocol allows, but this operation does not.
    pub(crate) fn protocol_error(&self, what: &str) -> SandboxError {
        let error = SandboxError::new(
            SandboxErrorKind::Lost,
            format!("the guest broke the protocol: {what}; the sandbox was ended"),
        );
        self.link.fail(error.clone());
        error
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let deadline = self.link.grace_deadline();
        self.link.with(|state| {
            let before = state.multiplexer.is_open(self.channel);
            state.multiplexer.abandon(self.channel, deadline);
            if before {
                self.link.watch(state, deadline);
            }
        });
    }
}
