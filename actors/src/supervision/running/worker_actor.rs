//! The `ractor` actor around each worker.
//!
//! It runs the worker's start after it was linked, reports the class of the exit, and ensures that the worker's state
//! is dropped on the worker's own task. `ractor` sends the state of an ended actor to its supervisor's mailbox; so that
//! state is empty, and the worker is in the handler. The order of the fields is the order in which an incarnation is
//! dropped; its [`IncarnationGuard`] comes last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock, SystemClock, lock};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::actor_slot::SlotGuard;
use super::incarnation::{Incarnation, IncarnationGuard};
use super::timer::IdleTimer;
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
    /// Set when the worker stops by itself.
    finished: Mutex<Finished>,
    context: Context<W::Message>,
    slot_guard: SlotGuard<Envelope<W::Message>>,
    /// Cancels the work that it started.
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

    /// Starts the actor. It fails only if the supervisor ends.
    pub(crate) async fn spawn(self, supervisor: Option<ActorCell>) -> Result<(), SpawnErr> {
        match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, self, (), supervisor).await.map(drop),
            None => Actor::spawn(None, self, ()).await.map(drop),
        }
    }

    fn incarnation(&self) -> &Arc<Incarnation> {
        &self.guard.incarnation
    }

    /// Ends the actor with this exit, as a failure for `ractor`, so that nothing more of it runs.
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
            // The call itself, too, is the worker's code.
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

    /// Ends the actor after a failure: without `stop`, and after dropping the worker, before anybody is notified.
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

    /// Stops the worker if it was idle for long enough and nothing is on its way.
    fn check_idle(&self, myself: &ActorRef<Envelope<W::Message>>) {
        let Some(idle_timer) = self.context.idle_timer() else { return };
        if !idle_timer.has_elapsed(idle_message(myself)) {
            return;
        }
        let slot = &self.slot_guard.slot;
        // No new sender finds this actor; earlier ones hold a permit.
        slot.detach(self.incarnation());
        if self.context.has_jobs() || self.context.address().queue() > 0 {
            slot.attach(myself.clone(), self.incarnation());
            return self.touch(myself);
        }
        self.stop_self(myself);
    }

    /// Runs the worker's start. Returns the worker, or why the start failed.
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

    /// Runs no code of the worker, because the supervisor waits for this and is not linked yet.
    async fn pre_start(&self, myself: ActorRef<Self::Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        // An incarnation is started once.
        let _ = self.incarnation().cell.set(myself.get_cell());
        self.slot_guard.slot.attach(myself, self.incarnation());
        Ok(())
    }

    async fn post_start(&self, myself: ActorRef<Self::Msg>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        // Boxed, so that the task of an idle actor stays small.
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
                self.check_idle(&myself);
                Ok(())
            }
        }
    }

    /// `ractor` stops an actor when something below it ends, unless this is overridden. Nothing is below a worker.
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
        // Tasks that were just notified run before `stop` and a drop that may be slow: Tokio keeps the task
        // that was woken last for this thread, and no other thread takes it.
        tokio::task::yield_now().await;
        let worker = self.worker.lock().await.take();
        if let Some(worker) = worker {
            let exit = Box::pin(self.finish(worker)).await;
            self.incarnation().record(exit);
        }
        Ok(())
    }
}

/// The alarm's message, which makes the worker check whether it is idle.
fn idle_message<M: Send + 'static>(myself: &ActorRef<Envelope<M>>) -> impl FnOnce() + Send + 'static {
    let myself = myself.clone();
    // It may be over by then.
    move || drop(myself.send_message(Envelope::Idle))
}
