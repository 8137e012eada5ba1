//! The `ractor` actor of a supervisor. It passes inputs to the state machine and carries out its effects.
//!
//! - It awaits only `ractor`'s spawn of an actor, which runs no user code. So it always stays responsive.
//! - `ractor` reports the end of a child early (`handle_supervisor_evt`). The supervisor uses this only to stop
//!   siblings sooner. The child's [`IncarnationGuard`] reports that the incarnation is gone.
//! - The state is stored in the actor struct, so a killed supervisor drops it on its own task.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};

use super::actor_slot::SlotGuard;
use super::incarnation::IncarnationGuard;
use super::supervisor_message::{ChildReport, Request, SupervisorMessage};
use super::supervisor_state::{PendingCaller, SupervisorState};
use crate::supervision::handles::handle::SupervisorEndpoint;
use crate::supervision::machine::{Input, SupervisorPolicy};
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::spec::ChildSpec;

/// One incarnation of a supervisor.
pub(crate) struct SupervisorActor {
    state: tokio::sync::Mutex<SupervisorState>,
    children: Arc<[Arc<ChildSpec>]>,
    slot_guard: SlotGuard<SupervisorMessage>,
    guard: Arc<IncarnationGuard>,
}

impl SupervisorActor {
    pub(crate) fn new(
        endpoint: &Arc<SupervisorEndpoint>,
        supervisor_policy: SupervisorPolicy,
        children: Arc<[Arc<ChildSpec>]>,
        guard: Arc<IncarnationGuard>,
    ) -> Self {
        guard.incarnation.node.remove_children();
        let slot_guard =
            SlotGuard { slot: Arc::clone(&endpoint.slot), incarnation: Arc::clone(&guard.incarnation) };
        let state = tokio::sync::Mutex::new(SupervisorState::new(supervisor_policy, Arc::clone(&guard)));
        Self { state, children, slot_guard, guard }
    }

    /// Starts the actor. It fails only if the supervisor above it ends.
    pub(crate) async fn spawn(self, supervisor: Option<ActorCell>) -> Result<(), SpawnErr> {
        match supervisor {
            Some(supervisor) => Actor::spawn_linked(None, self, (), supervisor).await.map(drop),
            None => Actor::spawn(None, self, ()).await.map(drop),
        }
    }

    async fn handle_input(&self, myself: &ActorRef<SupervisorMessage>, input: Input) {
        let mut state = self.state.lock().await;
        if let Some(exit) = state.handle_input(myself, input).await {
            self.guard.incarnation.record(exit);
            self.slot_guard.slot.detach(&self.guard.incarnation);
            myself.stop(None);
        }
    }

    async fn take_request(&self, myself: &ActorRef<SupervisorMessage>, request: Request) {
        let input = {
            let mut state = self.state.lock().await;
            match request {
                Request::Start { spec, reply } => state.start_input(spec, reply),
                Request::Restart { id, reply } => {
                    let request = state.register(PendingCaller::Start { spec: None, reply, id: id.clone() });
                    Some(Input::Restart { request, id })
                }
                Request::Terminate { id, reply } => {
                    let request = state.register(PendingCaller::Terminate { reply, id: id.clone() });
                    Some(Input::Terminate { request, id })
                }
            }
        };
        if let Some(input) = input {
            self.handle_input(myself, input).await;
        }
    }
}

impl Actor for SupervisorActor {
    type Msg = SupervisorMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<SupervisorMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        // Cannot fail: an incarnation is started once.
        let _ = self.guard.incarnation.cell.set(myself.get_cell());
        self.slot_guard.slot.attach(myself, &self.guard.incarnation);
        Ok(())
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let input = self.state.lock().await.boot(&self.children);
        Box::pin(self.handle_input(&myself, input)).await;
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::ChildReport { key, generation, report } => {
                let mut state = self.state.lock().await;
                let input = match report {
                    ChildReport::Started => Input::Started { key, generation },
                    ChildReport::Leaving => Input::Leaving { key, generation },
                    ChildReport::Gone(exit) => state.child_gone(key, generation, exit),
                };
                drop(state);
                Box::pin(self.handle_input(&myself, input)).await;
            }
            SupervisorMessage::Request { request, permit } => {
                drop(permit);
                Box::pin(self.take_request(&myself, request)).await;
            }
            SupervisorMessage::Tick => Box::pin(self.handle_input(&myself, Input::Tick)).await,
            SupervisorMessage::Stop => Box::pin(self.handle_input(&myself, Input::Stop)).await,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let ended = match &event {
            SupervisionEvent::ActorTerminated(cell, ..) | SupervisionEvent::ActorFailed(cell, _) => {
                self.state.lock().await.child_ended(cell.get_id())
            }
            SupervisionEvent::ActorStarted(_) => return Ok(()),
            // With other features enabled, `ractor` has more events.
            _ => None,
        };
        match ended {
            Some(input) => Box::pin(self.handle_input(&myself, input)).await,
            None => {
                tracing::debug!(supervisor = ?self.guard.incarnation, ?event, "an event of an unknown child is ignored")
            }
        }
        Ok(())
    }

    /// Called when the actor stops. If its last child is gone, the exit is recorded already, and the record here has no
    /// effect.
    async fn post_stop(&self, _: ActorRef<SupervisorMessage>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.guard.incarnation.record(Exit::Shutdown);
        Ok(())
    }
}
