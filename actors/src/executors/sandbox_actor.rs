//! The actor of one sandbox. It creates the sandbox, watches it, and fails when the sandbox is lost, so that its
//! supervisor starts a new one.
//!
//! State: the sandbox, in joined work of the actor. After a crash of the actor this work removes the sandbox, and only then the
//! actor counts as gone. After a crash of the process the sandbox ends by itself.
//!
//! Some leftovers of a lost sandbox are inactive, so the next sandbox does not wait for them. A cleanup task of the slot removes
//! them later. The code that ends a session's sandbox waits for that task.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, with_deadline};
use conjure_sandbox::{CallOptions, ContentItem, Executor, HostAccess, SandboxError, SandboxErrorKind};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::idle_tracking::{IdleAction, IdlePolicy, PauseState, SandboxUsage};
use super::live_sandbox::{LiveSandbox, pause};
use super::sandbox_slot::{InstalledItem, SandboxLifecycle, SandboxSlot};
use super::source::ExecutorSource;
use crate::metrics::SandboxMetrics;
use crate::supervision::{Address, Context, Failure, Flow, WaitReasonGuard, Worker};

/// A cleanup that takes longer than this is logged as a warning.
const WARN_AFTER: Duration = Duration::from_secs(20);

/// The actor of one sandbox.
pub(crate) struct SandboxActor {
    /// Shows in the tree that the sandbox is paused. `None` while it runs.
    paused: Option<WaitReasonGuard>,
}

/// A message to the actor.
pub(crate) enum SandboxMessage {
    /// The sandbox has ended by itself.
    Lost(SandboxError),
    /// The sandbox was idle for long enough, and is stopped.
    StopIdle,
    /// The sandbox is idle, and was paused.
    Paused,
    /// The sandbox is used again and has resumed.
    Resumed,
}

/// The services of the actor.
#[derive(Clone)]
pub(crate) struct SandboxDeps {
    pub(crate) source: Arc<dyn ExecutorSource>,
    pub(crate) slot: Arc<SandboxSlot>,
    pub(crate) start_timeout: Duration,
    pub(crate) cleanup_timeout: Duration,
    pub(crate) idle_policy: IdlePolicy,
}

impl SandboxActor {
    /// Has the sandbox created, and returns when it serves calls.
    pub(crate) async fn start(deps: SandboxDeps, context: Context<SandboxMessage>) -> Result<Self, Failure> {
        let _waiting = context.waiting_for("its sandbox");
        let (ready, started) = oneshot::channel();
        let (address, path) = (context.address().clone(), context.path().to_owned());
        let deadline = SystemClock.deadline(deps.start_timeout);
        context.spawn_joined(move |stop| async move {
            let outcome = run_sandbox(&deps, deadline, (&path, &address), ready, &stop).await;
            if let Err((error, ready)) = outcome {
                if let Some(metrics) = &deps.slot.metrics {
                    metrics.start_failed(&error);
                }
                // The error is sent when nothing of the sandbox is left.
                let _ = ready.send(Err(error));
            }
        });
        match started.await {
            Ok(Ok(())) => Ok(Self { paused: None }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err("sandbox creation ended without a result".into()),
        }
    }
}

impl Worker for SandboxActor {
    type Message = SandboxMessage;

    async fn handle(
        &mut self,
        message: SandboxMessage,
        context: &Context<SandboxMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            SandboxMessage::Lost(reason) => return Err(reason.into()),
            SandboxMessage::StopIdle => return Ok(Flow::Stop),
            SandboxMessage::Paused => {
                self.paused = None;
                self.paused = Some(context.waiting_for("a call; its sandbox is paused"));
            }
            SandboxMessage::Resumed => self.paused = None,
        }
        Ok(Flow::Continue)
    }
}

type ReadySender = oneshot::Sender<Result<(), SandboxError>>;

/// Creates a sandbox, keeps it until it or the actor ends, and removes it.
async fn run_sandbox(
    deps: &SandboxDeps,
    deadline: Deadline,
    (path, address): (&str, &Address<SandboxMessage>),
    ready: ReadySender,
    stop: &CancellationToken,
) -> Result<(), (SandboxError, ReadySender)> {
    let SandboxDeps { source, slot, .. } = deps;
    let SandboxLifecycle { exclusive, closed, .. } = &*slot.lifecycle;
    // The supervisor already waits until the previous actor is gone. This lock guarantees it for the sandbox.
    let Some(_exclusive) = stop.run_until_cancelled(exclusive.lock()).await else { return Ok(()) };
    if closed.is_cancelled() {
        return Err((closed_error(), ready));
    }
    let stop = StopSignal { actor: stop, session: closed };
    let Some(admitted) = stop.run_until(source.acquire_permit(deadline)).await else { return Ok(()) };
    let admitted = match admitted {
        // The leftovers of the last sandbox count against the limit until they are removed. They may be the only obstacle.
        Err(error) if error.kind() == SandboxErrorKind::Overloaded && slot.lifecycle.has_cleanups() => {
            let left = async {
                let _ = with_deadline(&SystemClock, deadline, slot.lifecycle.wait_cleanups()).await;
                source.acquire_permit(deadline).await
            };
            let Some(admitted) = stop.run_until(left).await else { return Ok(()) };
            admitted
        }
        admitted => admitted,
    };
    let permit = match admitted {
        Ok(permit) => permit,
        Err(error) => return Err((error, ready)),
    };
    let Some(opened) = stop.run_until(source.create(deadline)).await else { return Ok(()) };
    let executor: Arc<dyn Executor> = match opened {
        Ok(executor) => Arc::from(executor),
        Err(error) => return Err((error, ready)),
    };
    let install_previous_items = stop.run_until(prepare_sandbox(&executor, deps, deadline)).await;
    let within = deps.cleanup_timeout;
    let outcome = match install_previous_items {
        None => Ok(()),
        Some(Err(error)) => Err((error, ready)),
        Some(Ok(sandbox)) => {
            let took = deps.start_timeout.saturating_sub(SystemClock.remaining(deadline));
            let counted = slot.metrics.as_ref().map(|metrics| metrics.live(took));
            // The caller may have stopped waiting; then the actor has ended.
            let _ = ready.send(Ok(()));
            let end_reason = watch(&sandbox, deps, address, stop).await;
            drop(counted);
            if end_reason == EndReason::Lost {
                let cleanup_deadline = SystemClock.deadline(within);
                stop_and_clean(executor.stop(), &*executor, cleanup_deadline, path).await;
                let path = path.to_owned();
                slot.lifecycle.cleanup_later(async move {
                    // The sandbox counts against the limit until nothing of it is left.
                    let _permit = permit;
                    stop_and_clean(executor.cleanup(), &*executor, cleanup_deadline, &path).await;
                });
                return Ok(());
            }
            Ok(())
        }
    };
    stop_and_clean(executor.cleanup(), &*executor, SystemClock.deadline(within), path).await;
    slot.lifecycle.wait_cleanups().await;
    outcome
}

/// How a sandbox stops serving calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    /// It ended by itself, and another one must replace it soon.
    Lost,
    /// It was ended on purpose. Callers that wait for this wait for the complete removal.
    Ended,
}

fn closed_error() -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, "the session's sandbox was closed")
}

/// The signals that end a sandbox from outside: its actor ends, or the slot is closed.
#[derive(Clone, Copy)]
struct StopSignal<'a> {
    actor: &'a CancellationToken,
    session: &'a CancellationToken,
}

impl StopSignal<'_> {
    /// The result of `work`, unless a signal comes first.
    async fn run_until<T>(self, work: impl Future<Output = T>) -> Option<T> {
        self.actor.run_until_cancelled(self.session.run_until_cancelled(work)).await.flatten()
    }
}

/// Initialises a new sandbox, installs the content of the previous one, and lets it serve calls.
async fn prepare_sandbox(
    executor: &Arc<dyn Executor>,
    deps: &SandboxDeps,
    deadline: Deadline,
) -> Result<Arc<LiveSandbox>, SandboxError> {
    let SandboxDeps { source, .. } = deps;
    if executor.layout() != source.layout() {
        let message = "the sandbox's layout differs from its source's layout; fix the source";
        return Err(SandboxError::new(SandboxErrorKind::Unavailable, message));
    }
    executor.init().await?;
    install_previous_items(executor, deps, deadline).await
}

async fn install_previous_items(
    executor: &Arc<dyn Executor>,
    SandboxDeps { slot, idle_policy, .. }: &SandboxDeps,
    deadline: Deadline,
) -> Result<Arc<LiveSandbox>, SandboxError> {
    let mut installed: Vec<InstalledItem> = Vec::new();
    loop {
        let required = slot.items();
        let is_among =
            |some: &[InstalledItem], one: &InstalledItem| some.iter().any(|other| other.number == one.number);
        // These items were removed meanwhile.
        for removed in installed.iter().filter(|one| !is_among(&required, one)) {
            let ContentItem { dir, name, .. } = &removed.item;
            executor.remove_content(*dir, name, CallOptions::until(deadline)).await?;
        }
        for new in required.iter().filter(|one| !is_among(&installed, one)) {
            executor.install_content(new.item.clone(), CallOptions::until(deadline)).await?;
        }
        installed = required;
        if let Some(sandbox) = slot.set_if_unchanged(executor, &installed, || SandboxUsage::new(*idle_policy))
        {
            return Ok(sandbox);
        }
    }
}

/// Waits until the sandbox or its actor ends, or until the sandbox was idle for long enough. Afterwards the sandbox serves no more
/// calls.
async fn watch(
    sandbox: &Arc<LiveSandbox>,
    deps: &SandboxDeps,
    address: &Address<SandboxMessage>,
    stop: StopSignal<'_>,
) -> EndReason {
    let slot = &deps.slot;
    let ended = async {
        tokio::select! {
            biased;
            reason = sandbox.ended() => Some(reason),
            () = wait_idle(sandbox, deps, address) => None,
        }
    };
    match stop.run_until(ended).await {
        Some(None) => {
            slot.clear_idle(sandbox);
            // The actor may already be ending.
            let _ = address.send(SandboxMessage::StopIdle);
            EndReason::Ended
        }
        Some(Some(reason)) => {
            if let Some(metrics) = &slot.metrics {
                metrics.lost();
            }
            slot.clear(sandbox, reason.clone());
            // The actor may already be ending.
            let _ = address.send(SandboxMessage::Lost(reason));
            EndReason::Lost
        }
        None if stop.session.is_cancelled() => {
            slot.clear(sandbox, closed_error());
            EndReason::Ended
        }
        None => {
            let message = "the sandbox was lost: it was ended together with the actor that kept it";
            slot.clear(sandbox, SandboxError::new(SandboxErrorKind::Lost, message));
            EndReason::Ended
        }
    }
}

/// Pauses the sandbox while it is idle. Returns when it was idle for long enough to be stopped. By then it can no longer be used,
/// and its files are on the host.
async fn wait_idle(sandbox: &LiveSandbox, deps: &SandboxDeps, address: &Address<SandboxMessage>) {
    let usage = &sandbox.usage;
    let (mut pause_state, mut counted) = (PauseState::Running, None);
    loop {
        match usage.next_action(pause_state).await {
            IdleAction::Pause => {
                pause_state = pause(sandbox).await;
                if pause_state == PauseState::Paused {
                    counted = deps.slot.metrics.as_ref().map(SandboxMetrics::paused);
                    // The actor may already be ending; the same holds below.
                    let _ = address.send(SandboxMessage::Paused);
                }
                continue;
            }
            IdleAction::Resumed => {
                pause_state = PauseState::Running;
                drop(counted.take());
                let _ = address.send(SandboxMessage::Resumed);
                continue;
            }
            IdleAction::Stop => {}
        }
        if sandbox.executor.host_access() == HostAccess::Copied {
            let options = CallOptions::until(SystemClock.deadline(deps.cleanup_timeout));
            if let Err(error) = sandbox.executor.copy_out(options).await {
                tracing::warn!(%error, "an idle sandbox is not stopped, because its files cannot be copied to the host");
                usage.extend();
                continue;
            }
        }
        if usage.try_end() {
            return;
        }
    }
}

/// Runs the cleanup of a sandbox. Returns when the next sandbox may use its workspace. Gives up at `cleanup_deadline`, because otherwise
/// the session could never end.
async fn stop_and_clean(
    cleaning: impl Future<Output = ()>,
    executor: &dyn Executor,
    cleanup_deadline: Deadline,
    actor: &str,
) {
    tokio::pin!(cleaning);
    let warn_at = SystemClock.deadline(WARN_AFTER).min(cleanup_deadline);
    if with_deadline(&SystemClock, warn_at, &mut cleaning).await.is_ok() {
        return;
    }
    tracing::warn!(actor, ?executor, "a sandbox has not ended yet");
    if with_deadline(&SystemClock, cleanup_deadline, cleaning).await.is_err() {
        tracing::warn!(
            actor,
            ?executor,
            "a sandbox did not end in time and is given up; its processes may still change its workspace"
        );
    }
}
