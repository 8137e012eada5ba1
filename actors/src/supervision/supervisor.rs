//! The `ractor` actor of a supervisor: it tells the machine what happens, and does what the machine says.
//!
//! It awaits nothing but `ractor`'s own spawn of an actor that runs no code of ours yet, so it is always responsive. What
//! `ractor` says of an end (`handle_supervisor_evt`) is only the early news, by which siblings are stopped; that an
//! incarnation is gone comes from its [`Presence`]. The state lies in the handler, so that a supervisor that is killed
//! drops it on its own task.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};

use super::control::{Control, Report, Request};
use super::exit::Exit;
use super::handle::SupervisorPort;
use super::life::Presence;
use super::machine::{Input, Plan};
use super::nursery::{Caller, Nursery};
use super::slot::Attachment;
use super::spec::ChildSpec;

/// One incarnation of a supervisor.
pub(crate) struct Supervising {
    nursery: tokio::sync::Mutex<Nursery>,
    children: Arc<[Arc<ChildSpec>]>,
    attachment: Attachment<Control>,
    presence: Arc<Presence>,
}

impl Supervising {
    pub(crate) fn new(
        port: &Arc<SupervisorPort>,
        plan: Plan,
        children: Arc<[Arc<ChildSpec>]>,
        presence: Arc<Presence>,
    ) -> Self {
        presence.life.node.forget_all();
        let attachment = Attachment { slot: Arc::clone(&port.slot), life: Arc::clone(&presence.life) };
        let nursery = tokio::sync::Mutex::new(Nursery::new(plan, Arc::clone(&presence)));
        Self { nursery, children, attachment, presence }
    }

    /// Starts the actor. What fails here fails because the supervisor above ends.
    pub(crate) async fn spawn(self, supervisor: Option<ActorCell>) -> Result<(), SpawnErr> {
        match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, self, (), supervisor).await.map(drop),
            None => Actor::spawn(None, self, ()).await.map(drop),
        }
    }

    async fn take_in(&self, myself: &ActorRef<Control>, input: Input) {
        let mut nursery = self.nursery.lock().await;
        if let Some(exit) = nursery.take_in(myself, input).await {
            self.presence.life.record(exit);
            self.attachment.slot.detach(&self.presence.life);
            myself.stop(None);
        }
    }

    async fn take_request(&self, myself: &ActorRef<Control>, request: Request) {
        let input = {
            let mut nursery = self.nursery.lock().await;
            match request {
                Request::Start { spec, reply } => nursery.admit(spec, reply),
                Request::Restart { id, reply } => {
                    let ticket = nursery.ticket(Caller::Starter { spec: None, reply, id: id.clone() });
                    Some(Input::Restart { ticket, id })
                }
                Request::Terminate { id, reply } => {
                    let ticket = nursery.ticket(Caller::Ender { reply, id: id.clone() });
                    Some(Input::Terminate { ticket, id })
                }
            }
        };
        if let Some(input) = input {
            self.take_in(myself, input).await;
        }
    }
}

impl Actor for Supervising {
    type Msg = Control;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<Control>, (): ()) -> Result<(), ActorProcessingErr> {
        // An incarnation is started once.
        let _ = self.presence.life.cell.set(myself.get_cell());
        self.attachment.slot.attach(myself, &self.presence.life);
        Ok(())
    }

    async fn post_start(&self, myself: ActorRef<Control>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        let input = self.nursery.lock().await.boot(&self.children);
        Box::pin(self.take_in(&myself, input)).await;
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Control>,
        message: Control,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Control::Report { key, generation, report } => {
                let mut nursery = self.nursery.lock().await;
                let input = match report {
                    Report::Started => Input::Started { key, generation },
                    Report::Leaving => Input::Leaving { key, generation },
                    Report::Gone(exit) => nursery.gone(key, generation, exit),
                };
                drop(nursery);
                Box::pin(self.take_in(&myself, input)).await;
            }
            Control::Request { request, permit } => {
                drop(permit);
                Box::pin(self.take_request(&myself, request)).await;
            }
            Control::Tick => Box::pin(self.take_in(&myself, Input::Tick)).await,
            Control::Stop => Box::pin(self.take_in(&myself, Input::Stop)).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Control>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let ended = match &event {
            SupervisionEvent::ActorTerminated(cell, ..) | SupervisionEvent::ActorFailed(cell, _) => {
                self.nursery.lock().await.ended(cell.get_id())
            }
            SupervisionEvent::ActorStarted(_) => return Ok(()),
            // A build with more of ractor's features has more events.
            _ => None,
        };
        match ended {
            Some(input) => Box::pin(self.take_in(&myself, input)).await,
            None => {
                tracing::debug!(supervisor = ?self.presence.life, ?event, "an event of no child is ignored")
            }
        }
        Ok(())
    }

    /// Reached when the last child is gone, whose end was recorded then.
    async fn post_stop(&self, _: ActorRef<Control>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.presence.life.record(Exit::Shutdown);
        Ok(())
    }
}
