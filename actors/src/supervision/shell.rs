//! The `ractor` actor around every worker.
//!
//! It runs the worker's start after it was linked, tells how it ended by class, and sees to it that the worker's state is
//! dropped on the worker's own task: `ractor` hands the state of an actor that ended to its supervisor's mailbox, so
//! that state is empty here, and the worker lies in the handler, which stays. The order of the fields is the order in
//! which an incarnation disappears; its [`Presence`] is the last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use futures_util::FutureExt;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::address::{Envelope, Port};
use super::context::Context;
use super::exit::{Cause, Exit, StartFailure, panic_text};
use super::idleness::Idleness;
use super::life::{Life, Presence};
use super::slot::Attachment;
use super::spec::Start;
use super::worker::{Flow, Worker};

/// What makes a worker's incarnations.
pub(crate) struct WorkerHatch<W: Worker> {
    pub(crate) port: Arc<Port<W::Message>>,
    pub(crate) start: Arc<Start<W>>,
    pub(crate) start_within: Duration,
    pub(crate) idle_after: Option<Duration>,
}

/// One incarnation of a worker.
pub(crate) struct Shell<W: Worker> {
    worker: tokio::sync::Mutex<Option<W>>,
    start: Arc<Start<W>>,
    start_within: Duration,
    /// It ends by its own word.
    done: Mutex<Done>,
    context: Context<W::Message>,
    attachment: Attachment<Envelope<W::Message>>,
    /// Ends the work that it started.
    _over: DropGuard,
    presence: Arc<Presence>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    No,
    Yes,
}

impl<W: Worker> Shell<W> {
    pub(crate) fn new(hatch: &WorkerHatch<W>, presence: Arc<Presence>) -> Self {
        let over = CancellationToken::new();
        let idleness = hatch.idle_after.map(|after| Arc::new(Idleness::new(after)));
        Self {
            worker: tokio::sync::Mutex::new(None),
            start: Arc::clone(&hatch.start),
            start_within: hatch.start_within,
            done: Mutex::new(Done::No),
            context: Context::new(&hatch.port, &presence, over.clone(), idleness),
            attachment: Attachment { slot: Arc::clone(&hatch.port.slot), life: Arc::clone(&presence.life) },
            _over: over.drop_guard(),
            presence,
        }
    }

    /// Starts the actor. What fails here fails because the supervisor ends.
    pub(crate) async fn spawn(self, supervisor: Option<ActorCell>) -> Result<(), SpawnErr> {
        match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, self, (), supervisor).await.map(drop),
            None => Actor::spawn(None, self, ()).await.map(drop),
        }
    }

    fn life(&self) -> &Arc<Life> {
        &self.presence.life
    }

    /// Ends the actor with this exit, as a failure in the eyes of `ractor`, so that nothing more of it runs.
    fn fail(&self, exit: Exit) -> Result<(), ActorProcessingErr> {
        self.attachment.slot.detach(self.life());
        let text = exit.to_string();
        self.life().record(exit);
        Err(text.into())
    }

    /// Ends the actor by its own word. What waits in its mailbox is lost.
    fn leave(&self, myself: &ActorRef<Envelope<W::Message>>) {
        self.attachment.slot.detach(self.life());
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = Done::Yes;
        self.presence.report_leaving();
        myself.stop(None);
    }

    async fn take_up(
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
                self.leave(myself);
                Ok(())
            }
            Ok(Err(failure)) => self.abandon(Exit::Failed(Cause::new(failure))).await,
            Err(payload) => self.abandon(Exit::Panicked(panic_text(payload.as_ref()))).await,
        }
    }

    /// Ends the actor after a failure: without last words, and without the worker, before anybody hears of it.
    async fn abandon(&self, exit: Exit) -> Result<(), ActorProcessingErr> {
        let worker = self.worker.lock().await.take();
        if catch_unwind(AssertUnwindSafe(|| drop(worker))).is_err() {
            tracing::error!(actor = ?self.life(), "the drop of a worker that had failed panicked");
        }
        self.fail(exit)
    }

    /// It was busy until now.
    fn touch(&self, myself: &ActorRef<Envelope<W::Message>>) {
        if let Some(idleness) = self.context.idleness() {
            idleness.touch(look(myself));
        }
    }

    /// Stops when it was idle for long enough, and nothing is on its way.
    fn look_idle(&self, myself: &ActorRef<Envelope<W::Message>>) {
        let Some(idleness) = self.context.idleness() else { return };
        if !idleness.is_over(look(myself)) {
            return;
        }
        let slot = &self.attachment.slot;
        // Nobody finds the way here any more; whoever found it before holds a permit.
        slot.detach(self.life());
        if self.context.has_jobs() || self.context.address().queue() > 0 {
            slot.attach(myself.clone(), self.life());
            return self.touch(myself);
        }
        self.leave(myself);
    }

    /// Runs the worker's start; what came of it, or why it was given up.
    async fn make(&self) -> Result<W, Exit> {
        let (start, context) = (&self.start, self.context.clone());
        let making = AssertUnwindSafe(async move { start(context).await }).catch_unwind();
        tokio::select! {
            biased;
            () = self.life().stopping.cancelled() => Err(Exit::Shutdown),
            made = making => match made {
                Ok(Ok(worker)) => Ok(worker),
                Ok(Err(failure)) => Err(Exit::StartFailed(StartFailure::Failed(Cause::new(failure)))),
                Err(payload) => Err(Exit::StartFailed(StartFailure::Panicked(panic_text(payload.as_ref())))),
            },
            () = SystemClock.sleep_until(SystemClock.deadline(self.start_within)) => {
                Err(Exit::StartFailed(StartFailure::TooSlow(self.start_within)))
            }
        }
    }

    /// The worker's last words, and its drop, both here on its own task.
    async fn finish(&self, worker: W) -> Exit {
        let mut worker = worker;
        let stopped = AssertUnwindSafe(async { worker.stop(&self.context).await }).catch_unwind().await;
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(worker)));
        match (stopped, dropped) {
            (Ok(Ok(())), Ok(())) => match *self.done.lock().unwrap_or_else(PoisonError::into_inner) {
                Done::Yes => Exit::Normal,
                Done::No => Exit::Shutdown,
            },
            (Ok(Err(failure)), _) => Exit::Failed(Cause::new(failure)),
            (Err(payload), _) | (_, Err(payload)) => Exit::Panicked(panic_text(payload.as_ref())),
        }
    }
}

impl<W: Worker> Actor for Shell<W> {
    type Msg = Envelope<W::Message>;
    type State = ();
    type Arguments = ();

    /// Runs nothing of the worker's: the supervisor waits for it, and it is not linked yet.
    async fn pre_start(&self, myself: ActorRef<Self::Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        // An incarnation is started once.
        let _ = self.life().cell.set(myself.get_cell());
        self.attachment.slot.attach(myself, self.life());
        Ok(())
    }

    async fn post_start(&self, myself: ActorRef<Self::Msg>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        // What an idle actor does not need is not part of its task.
        match Box::pin(self.make()).await {
            Ok(worker) => {
                *self.worker.lock().await = Some(worker);
                self.presence.report_started();
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
                Box::pin(self.take_up(message, &myself)).await
            }
            Envelope::Idle => {
                self.look_idle(&myself);
                Ok(())
            }
        }
    }

    /// `ractor` stops an actor when something below it ends, unless told otherwise. Nothing is below a worker.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        tracing::debug!(actor = ?self.life(), ?event, "an event of no child is ignored");
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Self::Msg>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.attachment.slot.detach(self.life());
        // Whoever was just told something runs before the last words and a drop that may be heavy: Tokio keeps the task
        // that was woken last for this thread, and no other thread takes it.
        tokio::task::yield_now().await;
        let worker = self.worker.lock().await.take();
        if let Some(worker) = worker {
            let exit = Box::pin(self.finish(worker)).await;
            self.life().record(exit);
        }
        Ok(())
    }
}

/// What an alarm does: the worker looks whether it is idle.
fn look<M: Send + 'static>(myself: &ActorRef<Envelope<M>>) -> impl FnOnce() + Send + 'static {
    let myself = myself.clone();
    // It may be over by then.
    move || drop(myself.send_message(Envelope::Idle))
}
