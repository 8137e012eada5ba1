//! The `ractor` actor around each worker, and the passivation of idle workers.
//!
//! - It runs the worker's start function after the actor was linked to its supervisor.
//! - It records the worker's exit.
//! - It ensures that the worker's state is dropped on the worker's own task. `ractor` moves the state of an ended actor
//!   to the mailbox of its supervisor. So `ractor`'s state is `()`, and [`WorkerActor`] holds the worker.
//! - The fields of [`WorkerActor`] are dropped in their order, so the [`IncarnationGuard`] comes last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, SystemClock, lock};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::actor_slot::SlotGuard;
use super::idle_timer::IdleTimer;
use super::incarnation::{Incarnation, IncarnationGuard};
use crate::supervision::handles::address::{Envelope, WorkerEndpoint};
use crate::supervision::handles::context::Context;
use crate::supervision::handles::worker::{Flow, Worker};
use crate::supervision::specs::exit::{Cause, Exit, Failure, StartFailure, panic_text};

/// The start function of a worker.
pub(crate) type Start<W> =
    dyn Fn(Context<<W as Worker>::Message>) -> BoxFuture<'static, Result<W, Failure>> + Send + Sync;

/// Creates the incarnations of a worker.
pub(crate) struct WorkerFactory<W: Worker> {
    pub(crate) endpoint: Arc<WorkerEndpoint<W::Message>>,
    pub(crate) start: Arc<Start<W>>,
    pub(crate) start_timeout: Duration,
    pub(crate) idle_after: Option<Duration>,
}

/// One incarnation of a worker.
pub(crate) struct WorkerActor<W: Worker> {
    worker: tokio::sync::Mutex<Option<W>>,
    start: Arc<Start<W>>,
    start_timeout: Duration,
    /// Set to `Yes` when the worker stops by itself.
    finished: Mutex<Finished>,
    context: Context<W::Message>,
    slot_guard: SlotGuard<Envelope<W::Message>>,
    /// Cancels the actor's tracked work when it is dropped.
    _shutdown: DropGuard,
    guard: Arc<IncarnationGuard>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Finished {
    No,
    Yes,
}

impl<W: Worker> WorkerActor<W> {
    pub(crate) fn new(factory: &WorkerFactory<W>, guard: Arc<IncarnationGuard>) -> Self {
        let shutdown = CancellationToken::new();
        let idle_timer = factory.idle_after.map(|after| Arc::new(IdleTimer::new(after)));
        Self {
            worker: tokio::sync::Mutex::new(None),
            start: Arc::clone(&factory.start),
            start_timeout: factory.start_timeout,
            finished: Mutex::new(Finished::No),
            context: Context::new(&factory.endpoint, &guard, shutdown.clone(), idle_timer),
            slot_guard: SlotGuard {
                slot: Arc::clone(&factory.endpoint.slot),
                incarnation: Arc::clone(&guard.incarnation),
            },
            _shutdown: shutdown.drop_guard(),
            guard,
        }
    }

    /// Starts the actor. Fails only if the supervisor ends.
    pub(crate) async fn spawn(self, supervisor: Option<ActorCell>) -> Result<(), SpawnErr> {
        match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, self, (), supervisor).await.map(drop),
            None => Actor::spawn(None, self, ()).await.map(drop),
        }
    }

    fn incarnation(&self) -> &Arc<Incarnation> {
        &self.guard.incarnation
    }

    /// Records the exit, and returns an error. The error makes `ractor` end the actor without running more of it.
    fn fail(&self, exit: Exit) -> Result<(), ActorProcessingErr> {
        self.slot_guard.slot.detach(self.incarnation());
        let text = exit.to_string();
        self.incarnation().record(exit);
        Err(text.into())
    }

    /// Stops the actor normally. Messages in its mailbox are lost.
    fn stop_self(&self, myself: &ActorRef<Envelope<W::Message>>) {
        self.slot_guard.slot.detach(self.incarnation());
        *lock(&self.finished) = Finished::Yes;
        self.guard.report_leaving();
        myself.stop(None);
    }

    async fn receive(
        &self,
        message: W::Message,
        myself: &ActorRef<Envelope<W::Message>>,
    ) -> Result<(), ActorProcessingErr> {
        let outcome = {
            let mut worker = self.worker.lock().await;
            let Some(worker) = worker.as_mut() else { return Ok(()) };
            // `handle` is called inside the future, because a panic of the call must be caught too.
            AssertUnwindSafe(async { worker.handle(message, &self.context).await }).catch_unwind().await
        };
        match outcome {
            Ok(Ok(Flow::Continue)) => {
                self.touch(myself);
                Ok(())
            }
            Ok(Ok(Flow::Stop)) => {
                self.stop_self(myself);
                Ok(())
            }
            Ok(Err(failure)) => self.abandon(Exit::Failed(Cause::new(failure))).await,
            Err(payload) => self.abandon(Exit::Panicked(panic_text(payload.as_ref()))).await,
        }
    }

    /// Ends the actor after a failure, without `stop`. The worker is dropped first, before the supervisor and the
    /// monitors are notified.
    async fn abandon(&self, exit: Exit) -> Result<(), ActorProcessingErr> {
        let worker = self.worker.lock().await.take();
        if catch_unwind(AssertUnwindSafe(|| drop(worker))).is_err() {
            tracing::error!(actor = ?self.incarnation(), "the drop of a worker that had failed panicked");
        }
        self.fail(exit)
    }

    /// Records that the worker was busy until now.
    fn touch(&self, myself: &ActorRef<Envelope<W::Message>>) {
        if let Some(idle_timer) = self.context.idle_timer() {
            idle_timer.touch(idle_message(myself));
        }
    }

    /// Passivates the worker, which stops it, if it was idle for its idle time, no message is on its way, and only
    /// background work runs.
    fn passivate_if_idle(&self, myself: &ActorRef<Envelope<W::Message>>) {
        let Some(idle_timer) = self.context.idle_timer() else { return };
        if !idle_timer.has_elapsed(idle_message(myself)) {
            return;
        }
        let slot = &self.slot_guard.slot;
        // After this, no new sender finds the actor. A sender that found it before holds a permit, which `queue`
        // counts.
        slot.detach(self.incarnation());
        if self.context.has_jobs() || self.context.address().queue() > 0 {
            slot.attach(myself.clone(), self.incarnation());
            return self.touch(myself);
        }
        self.stop_self(myself);
    }

    /// Runs the worker's start function. Returns the worker, or why the start failed.
    async fn start_worker(&self) -> Result<W, Exit> {
        let (start, context) = (&self.start, self.context.clone());
        let making = AssertUnwindSafe(async move { start(context).await }).catch_unwind();
        tokio::select! {
            biased;
            () = self.incarnation().stopping.cancelled() => Err(Exit::Shutdown),
            made = making => match made {
                Ok(Ok(worker)) => Ok(worker),
                Ok(Err(failure)) => Err(Exit::StartFailed(StartFailure::Failed(Cause::new(failure)))),
                Err(payload) => Err(Exit::StartFailed(StartFailure::Panicked(panic_text(payload.as_ref())))),
            },
            () = SystemClock.sleep_until(SystemClock.deadline(self.start_timeout)) => {
                Err(Exit::StartFailed(StartFailure::TooSlow(self.start_timeout)))
            }
        }
    }

    /// Runs the worker's `stop` and drops it, both on its own task.
    async fn finish(&self, worker: W) -> Exit {
        let mut worker = worker;
        let stopped = AssertUnwindSafe(async { worker.stop(&self.context).await }).catch_unwind().await;
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(worker)));
        match (stopped, dropped) {
            (Ok(Ok(())), Ok(())) => match *lock(&self.finished) {
                Finished::Yes => Exit::Normal,
                Finished::No => Exit::Shutdown,
            },
            (Ok(Err(failure)), _) => Exit::Failed(Cause::new(failure)),
            (Err(payload), _) | (_, Err(payload)) => Exit::Panicked(panic_text(payload.as_ref())),
        }
    }
}

impl<W: Worker> Actor for WorkerActor<W> {
    type Msg = Envelope<W::Message>;
    type State = ();
    type Arguments = ();

    /// Runs no code of the worker: the supervisor waits for this function, and is not linked to the actor yet.
    async fn pre_start(&self, myself: ActorRef<Self::Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        // Cannot fail: an incarnation is started once.
        let _ = self.incarnation().cell.set(myself.get_cell());
        self.slot_guard.slot.attach(myself, self.incarnation());
        Ok(())
    }

    async fn post_start(&self, myself: ActorRef<Self::Msg>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        // Boxed to keep the task of an idle actor small.
        match Box::pin(self.start_worker()).await {
            Ok(worker) => {
                *self.worker.lock().await = Some(worker);
                self.guard.report_started();
                self.touch(&myself);
                Ok(())
            }
            Err(exit) => self.fail(exit),
        }
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        envelope: Self::Msg,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match envelope {
            Envelope::Message { message, permit } => {
                drop(permit);
                Box::pin(self.receive(message, &myself)).await
            }
            Envelope::Idle => {
                self.passivate_if_idle(&myself);
                Ok(())
            }
        }
    }

    /// Ignores the event. By default, `ractor` stops an actor when a linked actor below it ends. No actor is linked
    /// below a worker.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        tracing::debug!(actor = ?self.incarnation(), ?event, "an event of an unknown child is ignored");
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Self::Msg>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.slot_guard.slot.detach(self.incarnation());
        // Yields so that tasks that were just notified run before `stop` and the drop, which may be slow. Tokio keeps
        // the task that was woken last for this thread, and no other thread takes it.
        tokio::task::yield_now().await;
        let worker = self.worker.lock().await.take();
        if let Some(worker) = worker {
            let exit = Box::pin(self.finish(worker)).await;
            self.incarnation().record(exit);
        }
        Ok(())
    }
}

/// Sends the message on which the worker checks whether it was idle.
fn idle_message<M: Send + 'static>(myself: &ActorRef<Envelope<M>>) -> impl FnOnce() + Send + 'static {
    let myself = myself.clone();
    // The actor may have ended by then.
    move || drop(myself.send_message(Envelope::Idle))
}
