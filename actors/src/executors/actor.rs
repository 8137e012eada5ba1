//! The actor beside one sandbox: it has it made, watches it, and fails when it is lost, so that its supervisor replaces it.
//!
//! State: the sandbox, in lasting work of the actor. In a crash of the actor that work clears the sandbox away, and only then
//! the actor counts as gone; in a crash of the host the sandbox ends itself. What is left of a sandbox that was lost, and changes
//! nothing any more, is removed in a task of the berth's, behind the next one; whoever ends a session's sandbox waits for it.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
#[cfg(target_os = "linux")]
use conjure_sandbox::Provision;
use conjure_sandbox::{CallOptions, Executor, SandboxError, SandboxErrorKind, Sharing};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[cfg(target_os = "linux")]
use super::berth::Remembered;
use super::berth::{Berth, Mooring, Occupant};
use super::pausing::pause;
use super::source::ExecutorSource;
use super::stay::{Due, Idling, Rest, Stay};
use crate::metrics::SandboxMeter;
use crate::supervision::{Address, Context, Failure, Flow, Waiting, Worker};

/// Beyond this, a sandbox that is cleared away is complained about.
const PATIENCE: Duration = Duration::from_secs(20);

/// Watches over one sandbox.
pub(crate) struct ExecutorActor {
    /// Says in the tree that its sandbox is paused, while it is.
    paused: Option<Waiting>,
}

/// What it understands.
pub(crate) enum ExecutorMessage {
    /// Its sandbox has ended.
    Lost(SandboxError),
    /// Nobody used its sandbox, which is put away.
    PutAway,
    /// Nobody uses its sandbox, in which everything stands still.
    Paused,
    /// Somebody uses it, and all goes on.
    Resumed,
}

/// What it is made of.
#[derive(Clone)]
pub(crate) struct Makings {
    pub(crate) source: Arc<dyn ExecutorSource>,
    pub(crate) berth: Arc<Berth>,
    pub(crate) start_within: Duration,
    pub(crate) clear_within: Duration,
    pub(crate) idling: Idling,
}

impl ExecutorActor {
    /// Has the sandbox made, and returns when it serves calls.
    pub(crate) async fn start(makings: Makings, context: Context<ExecutorMessage>) -> Result<Self, Failure> {
        let _waiting = context.waits_for("its sandbox");
        let (ready, started) = oneshot::channel();
        let (address, path) = (context.address().clone(), context.path().to_owned());
        let deadline = SystemClock.deadline(makings.start_within);
        context.spawn_lasting(move |over| async move {
            let kept = keep(&makings, deadline, (&path, &address), ready, &over).await;
            if let Err((error, ready)) = kept {
                if let Some(meter) = &makings.berth.meter {
                    meter.refused(&error);
                }
                // Told when nothing of it is left.
                let _ = ready.send(Err(error));
            }
        });
        match started.await {
            Ok(Ok(())) => Ok(Self { paused: None }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err("the making of the sandbox broke off".into()),
        }
    }
}

impl Worker for ExecutorActor {
    type Message = ExecutorMessage;

    async fn handle(
        &mut self,
        message: ExecutorMessage,
        context: &Context<ExecutorMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            ExecutorMessage::Lost(reason) => return Err(reason.into()),
            ExecutorMessage::PutAway => return Ok(Flow::Stop),
            ExecutorMessage::Paused => {
                self.paused = None;
                self.paused = Some(context.waits_for("a call; its sandbox is paused"));
            }
            ExecutorMessage::Resumed => self.paused = None,
        }
        Ok(Flow::Continue)
    }
}

type Ready = oneshot::Sender<Result<(), SandboxError>>;

/// Makes a sandbox, keeps it until it or the actor ends, and clears it away.
async fn keep(
    makings: &Makings,
    deadline: Deadline,
    (path, address): (&str, &Address<ExecutorMessage>),
    ready: Ready,
    over: &CancellationToken,
) -> Result<(), (SandboxError, Ready)> {
    let Makings { source, berth, .. } = makings;
    let Mooring { rope, closed, .. } = &*berth.mooring;
    // The supervisor sees to it that the one before is gone. This says so again, where it matters.
    let Some(_moored) = over.run_until_cancelled(rope.lock()).await else { return Ok(()) };
    if closed.is_cancelled() {
        return Err((closing(), ready));
    }
    let over = Over { actor: over, session: closed };
    let Some(admitted) = over.unless(source.admit(deadline)).await else { return Ok(()) };
    let admitted = match admitted {
        // What is left of the one before counts until it is gone, and may be all that is in the way.
        Err(error) if error.kind() == SandboxErrorKind::Overloaded && berth.mooring.is_leaving() => {
            let left = async {
                tokio::select! {
                    biased;
                    () = berth.mooring.left() => {}
                    () = SystemClock.sleep_until(deadline) => {}
                }
                source.admit(deadline).await
            };
            let Some(admitted) = over.unless(left).await else { return Ok(()) };
            admitted
        }
        admitted => admitted,
    };
    let permit = match admitted {
        Ok(permit) => permit,
        Err(error) => return Err((error, ready)),
    };
    let Some(opened) = over.unless(source.open(deadline)).await else { return Ok(()) };
    let executor: Arc<dyn Executor> = match opened {
        Ok(executor) => Arc::from(executor),
        Err(error) => return Err((error, ready)),
    };
    let furnished = over.unless(furnish(&executor, makings, deadline)).await;
    let within = makings.clear_within;
    let outcome = match furnished {
        None => Ok(()),
        Some(Err(error)) => Err((error, ready)),
        Some(Ok(occupant)) => {
            let took = makings.start_within.saturating_sub(SystemClock.remaining(deadline));
            let counted = berth.meter.as_ref().map(|meter| meter.live(took));
            // Whoever waited may have given up: then the actor is over.
            let _ = ready.send(Ok(()));
            let parting = watch(&occupant, makings, address, over).await;
            drop(counted);
            if parting == Parting::Lost {
                let given_up = SystemClock.deadline(within);
                clear_away(executor.vacate(), &*executor, given_up, path).await;
                let path = path.to_owned();
                berth.mooring.leave(async move {
                    // It counts until nothing of it is left.
                    let _permit = permit;
                    clear_away(executor.cleanup(), &*executor, given_up, &path).await;
                });
                return Ok(());
            }
            Ok(())
        }
    };
    clear_away(executor.cleanup(), &*executor, SystemClock.deadline(within), path).await;
    berth.mooring.left().await;
    outcome
}

/// How a sandbox ceases to serve calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// It ended by itself, and the next one is to take its place soon.
    Lost,
    /// Nobody wants it any more: whoever waits for that waits for all of it.
    Ended,
}

fn closing() -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, "the session's sandbox was closed")
}

/// What ends a sandbox from outside: its actor's end, or that nobody wants one any more.
#[derive(Clone, Copy)]
struct Over<'a> {
    actor: &'a CancellationToken,
    session: &'a CancellationToken,
}

impl Over<'_> {
    /// What comes of `work`, unless that comes first.
    async fn unless<T>(self, work: impl Future<Output = T>) -> Option<T> {
        self.actor.run_until_cancelled(self.session.run_until_cancelled(work)).await.flatten()
    }
}

/// Prepares a sandbox, puts on its shelves what was on those of the one before, and has it serve calls.
async fn furnish(
    executor: &Arc<dyn Executor>,
    makings: &Makings,
    deadline: Deadline,
) -> Result<Arc<Occupant>, SandboxError> {
    let Makings { source, .. } = makings;
    if executor.layout() != source.layout() {
        let message = "things lie elsewhere in the sandbox than its source had said; mend the source";
        return Err(SandboxError::new(SandboxErrorKind::Unavailable, message));
    }
    executor.init().await?;
    furnished(executor, makings, deadline).await
}

#[cfg(target_os = "linux")]
async fn furnished(
    executor: &Arc<dyn Executor>,
    Makings { berth, idling, .. }: &Makings,
    deadline: Deadline,
) -> Result<Arc<Occupant>, SandboxError> {
    let mut given: Vec<Remembered> = Vec::new();
    loop {
        let wanted = berth.provisions();
        let is_among =
            |some: &[Remembered], one: &Remembered| some.iter().any(|other| other.number == one.number);
        // Somebody withdrew it meanwhile.
        for gone in given.iter().filter(|one| !is_among(&wanted, one)) {
            let Provision { shelf, name, .. } = &gone.provision;
            executor.withdraw(*shelf, name, CallOptions::until(deadline)).await?;
        }
        for new in wanted.iter().filter(|one| !is_among(&given, one)) {
            executor.provide(new.provision.clone(), CallOptions::until(deadline)).await?;
        }
        given = wanted;
        if let Some(occupant) = berth.occupy_with(executor, &given, || Stay::new(*idling)) {
            return Ok(occupant);
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unused_async, reason = "elsewhere there is something to wait for")]
async fn furnished(
    executor: &Arc<dyn Executor>,
    Makings { berth, idling, .. }: &Makings,
    _: Deadline,
) -> Result<Arc<Occupant>, SandboxError> {
    Ok(berth.occupy(Arc::clone(executor), Stay::new(*idling)))
}

/// Waits for the end of the sandbox or of its actor, or until nobody uses it, and has no more calls served.
async fn watch(
    occupant: &Arc<Occupant>,
    makings: &Makings,
    address: &Address<ExecutorMessage>,
    over: Over<'_>,
) -> Parting {
    let berth = &makings.berth;
    let ended = async {
        tokio::select! {
            biased;
            reason = occupant.ended() => Some(reason),
            () = unused(occupant, makings, address) => None,
        }
    };
    match over.unless(ended).await {
        Some(None) => {
            berth.put_away(occupant);
            // It may just be ending by itself.
            let _ = address.send(ExecutorMessage::PutAway);
            Parting::Ended
        }
        Some(Some(reason)) => {
            if let Some(meter) = &berth.meter {
                meter.lost();
            }
            berth.vacate(occupant, reason.clone());
            // It may just be ending by itself.
            let _ = address.send(ExecutorMessage::Lost(reason));
            Parting::Lost
        }
        None if over.session.is_cancelled() => {
            berth.vacate(occupant, closing());
            Parting::Ended
        }
        None => {
            let message = "the sandbox was lost: it was ended together with the actor that kept it";
            berth.vacate(occupant, SandboxError::new(SandboxErrorKind::Lost, message));
            Parting::Ended
        }
    }
}

/// Pauses the sandbox while nobody uses it. Returns when nobody has used it for long enough, and nobody may any more. What is not
/// on the host yet is, then.
async fn unused(occupant: &Occupant, makings: &Makings, address: &Address<ExecutorMessage>) {
    let stay = &occupant.stay;
    let (mut rest, mut counted) = (Rest::Awake, None);
    loop {
        match stay.due(rest).await {
            Due::Pause => {
                rest = pause(occupant).await;
                if rest == Rest::Paused {
                    counted = makings.berth.meter.as_ref().map(SandboxMeter::paused);
                    // It may just be ending by itself, as below.
                    let _ = address.send(ExecutorMessage::Paused);
                }
                continue;
            }
            Due::Awake => {
                rest = Rest::Awake;
                drop(counted.take());
                let _ = address.send(ExecutorMessage::Resumed);
                continue;
            }
            Due::PutAway => {}
        }
        if occupant.executor.sharing() == Sharing::Transferred {
            let options = CallOptions::until(SystemClock.deadline(makings.clear_within));
            if let Err(error) = occupant.executor.bring_back(options).await {
                tracing::warn!(%error, "a sandbox that nobody uses stays, as its files cannot be brought to the host");
                stay.prolong();
                continue;
            }
        }
        if stay.end() {
            return;
        }
    }
}

/// Waits for the end of a sandbox, as far as the next one that gets its workspace has to. One that does not go in time is given
/// up, as nothing of its session would ever end else.
async fn clear_away(
    cleaning: impl Future<Output = ()>,
    executor: &dyn Executor,
    given_up: Deadline,
    actor: &str,
) {
    tokio::pin!(cleaning);
    tokio::select! {
        biased;
        () = &mut cleaning => return,
        () = SystemClock.sleep_until(SystemClock.deadline(PATIENCE).earlier(given_up)) => {}
    }
    tracing::warn!(actor, ?executor, "a sandbox is not gone yet");
    tokio::select! {
        biased;
        () = cleaning => {}
        () = SystemClock.sleep_until(given_up) => {
            tracing::warn!(actor, ?executor, "a sandbox did not go and is given up; what runs in it may still change its workspace");
        }
    }
}
