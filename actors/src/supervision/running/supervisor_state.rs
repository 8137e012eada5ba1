//! The state of one incarnation of a supervisor: the state machine, and the children that its keys stand for.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use ractor::{ActorId, ActorRef};
use tokio::sync::oneshot;

use super::incarnation::{Incarnation, IncarnationGuard, Parent};
use super::lifecycle_events;
use super::node::{Node, Status};
use super::supervisor_message::{StartReply, SupervisorMessage};
use super::timer::OneShotTimer;
use crate::supervision::handles::child::Child;
use crate::supervision::handles::error::{RequestError, StartError};
use crate::supervision::machine::{
    ChildKey, ChildStatus, ChildrenKind, Effect, Generation, Input, Machine, RequestId, RequestReply,
    StopCause, SupervisorPolicy, Uptime,
};
use crate::supervision::specs::exit::{Exit, StartFailure};
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::spec::ChildSpec;

/// The state of one incarnation of a supervisor.
pub(crate) struct SupervisorState {
    machine: Machine,
    children_kind: ChildrenKind,
    children: HashMap<ChildKey, ChildEntry>,
    /// The keys of the children by their actors, to handle the reports of `ractor`.
    actors: HashMap<ActorId, ChildKey>,
    callers: HashMap<RequestId, PendingCaller>,
    last_request: u64,
    /// The specs of the initial children, until the machine has given them keys.
    initial_specs: HashMap<ChildId, Arc<ChildSpec>>,
    timer: Option<OneShotTimer>,
    epoch: Deadline,
    jitter: JitterSource,
    guard: Arc<IncarnationGuard>,
}

/// One child.
struct ChildEntry {
    spec: Arc<ChildSpec>,
    node: Arc<Node>,
    /// The incarnation that runs, or ran last.
    incarnation: Option<Arc<Incarnation>>,
}

/// A caller that waits for an answer.
pub(crate) enum PendingCaller {
    /// A caller that waits for a start or restart. `spec` is the spec of a new child, until the machine has given it a
    /// key.
    Start {
        spec: Option<Arc<ChildSpec>>,
        id: ChildId,
        reply: StartReply,
    },
    Terminate {
        id: ChildId,
        reply: oneshot::Sender<Result<(), RequestError>>,
    },
}

/// Random bits for restart delays. They only spread restarts over time, so they need not be unpredictable.
struct JitterSource {
    state: RandomState,
    drawn: u64,
}

impl JitterSource {
    fn random(&mut self) -> u64 {
        self.drawn += 1;
        self.state.hash_one(self.drawn)
    }
}

impl SupervisorState {
    pub(crate) fn new(supervisor_policy: SupervisorPolicy, guard: Arc<IncarnationGuard>) -> Self {
        Self {
            machine: Machine::new(supervisor_policy),
            children_kind: supervisor_policy.children_kind,
            children: HashMap::new(),
            actors: HashMap::new(),
            callers: HashMap::new(),
            last_request: 0,
            initial_specs: HashMap::new(),
            timer: None,
            epoch: SystemClock.deadline(Duration::ZERO),
            jitter: JitterSource { state: RandomState::new(), drawn: 0 },
            guard,
        }
    }

    /// The first input of the machine.
    pub(crate) fn boot(&mut self, children: &[Arc<ChildSpec>]) -> Input {
        let policies = children.iter().map(|spec| (spec.id.clone(), spec.policy)).collect();
        self.initial_specs = children.iter().map(|spec| (spec.id.clone(), Arc::clone(spec))).collect();
        Input::Boot { children: policies }
    }

    /// Registers a waiting caller, and returns its id.
    pub(crate) fn register(&mut self, caller: PendingCaller) -> RequestId {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.callers.insert(request, caller);
        request
    }

    /// The input for a request to start a child. If the spec does not fit this supervisor, it sends the error to the
    /// caller and returns `None`.
    pub(crate) fn start_input(&mut self, spec: Arc<ChildSpec>, reply: StartReply) -> Option<Input> {
        let checked = match self.children_kind {
            ChildrenKind::Ordered { auto_shutdown, .. } => auto_shutdown.check_child(&spec),
            ChildrenKind::Dynamic { .. } => {
                crate::supervision::specs::policy::AutoShutdown::Never.check_child(&spec)
            }
        };
        if let Err(error) = checked {
            // The caller may have stopped waiting.
            let _ = reply.send(Err(error.into()));
            return None;
        }
        let (id, policy) = (spec.id.clone(), spec.policy);
        let request = self.register(PendingCaller::Start { spec: Some(spec), id: id.clone(), reply });
        Some(Input::Start { request, id, policy })
    }

    /// The input for an end that `ractor` reports; `None` if the actor is unknown.
    pub(crate) fn child_ended(&mut self, actor: ActorId) -> Option<Input> {
        let key = *self.actors.get(&actor)?;
        let generation = self.generation(key, actor)?;
        let exit = self.children.get(&key)?.incarnation.as_ref()?.exit().class();
        Some(Input::Ended { key, generation, exit, random: self.jitter.random() })
    }

    /// The generation of the incarnation with this actor; `None` if it is not the last one.
    fn generation(&self, key: ChildKey, actor: ActorId) -> Option<Generation> {
        let incarnation = self.children.get(&key)?.incarnation.as_ref()?;
        let is_last = incarnation.cell.get().is_some_and(|cell| cell.get_id() == actor);
        is_last.then(|| self.machine.generation(key)).flatten()
    }

    /// The input for a child that is gone.
    pub(crate) fn child_gone(&mut self, key: ChildKey, generation: Generation, exit: Exit) -> Input {
        let class = exit.class();
        if self.machine.is_current(key, generation) {
            if let Some(entry) = self.children.get(&key) {
                if let Some(actor) = entry.incarnation.as_ref().and_then(|incarnation| incarnation.cell.get())
                {
                    self.actors.remove(&actor.get_id());
                }
                lifecycle_events::child_exited(&entry.node, &exit);
                entry.node.state().last_exit = Some(exit);
            }
        } else {
            tracing::debug!(supervisor = ?self.guard.incarnation, ?key, ?generation, "a late report of an end is ignored");
        }
        Input::Gone { key, generation, exit: class, random: self.jitter.random() }
    }

    /// Passes an input to the machine and carries out its effects. Returns the supervisor's exit if it ends.
    pub(crate) async fn handle_input(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        input: Input,
    ) -> Option<Exit> {
        let mut end = None;
        for effect in self.machine.step(self.now(), input) {
            match effect {
                Effect::Insert { request, id, key } => self.insert_child(request, &id, key),
                Effect::Spawn { key, generation } => self.spawn(myself, key, generation).await,
                Effect::Stop { key } => self.stop(key),
                Effect::Kill { key } => self.kill(key),
                Effect::StatusChanged { key, status } => self.status_changed(key, status),
                Effect::Reply { request, reply } => self.reply(request, reply),
                Effect::GiveUp { key } => self.give_up(key),
                Effect::Remove { key } => self.remove_child(key),
                Effect::Ready => self.guard.report_started(),
                Effect::Stopping { cause } => {
                    self.guard.set_root_status(Status::Stopping);
                    self.record_failed_start(cause);
                    lifecycle_events::supervisor_stopping(&self.guard.incarnation, cause);
                }
                Effect::Exit { .. } => {
                    // If the start of an initial child failed, that exit is recorded already, and this one is ignored.
                    end = Some(Exit::Shutdown);
                }
            }
        }
        self.set_timer(myself);
        end
    }

    fn now(&self) -> Uptime {
        let now = SystemClock.deadline(Duration::ZERO).instant();
        Uptime(match (now, self.epoch.instant()) {
            (Some(now), Some(epoch)) => now.saturating_duration_since(epoch),
            _ => Duration::ZERO,
        })
    }

    fn at(&self, uptime: Uptime) -> Deadline {
        let instant = self.epoch.instant().and_then(|epoch| epoch.checked_add(uptime.0));
        instant.map_or(Deadline::NEVER, Deadline::at)
    }

    fn set_timer(&mut self, myself: &ActorRef<SupervisorMessage>) {
        let next = self.machine.next_timer().map(|uptime| self.at(uptime));
        if next != self.timer.as_ref().map(OneShotTimer::at) {
            self.timer = next.map(|at| {
                let myself = myself.clone();
                // The supervisor may have ended by then.
                OneShotTimer::set(at, move || drop(myself.send_message(SupervisorMessage::Tick)))
            });
        }
    }

    fn insert_child(&mut self, request: Option<RequestId>, id: &ChildId, key: ChildKey) {
        let spec = match request {
            Some(request) => match self.callers.get_mut(&request) {
                Some(PendingCaller::Start { spec, .. }) => spec.take(),
                Some(PendingCaller::Terminate { .. }) | None => None,
            },
            None => self.initial_specs.remove(id),
        };
        let Some(spec) = spec else { return };
        let parent = &self.guard.incarnation.node;
        let node = Node::new(spec.id.clone(), spec.kind, &spec.labels, spec.gauge.clone(), Some(parent));
        let node = Arc::new(node);
        parent.insert_child(key, Arc::clone(&node));
        self.children.insert(key, ChildEntry { spec, node, incarnation: None });
    }

    async fn spawn(&mut self, myself: &ActorRef<SupervisorMessage>, key: ChildKey, generation: Generation) {
        let Some(entry) = self.children.get_mut(&key) else { return };
        let number = entry.spec.factory.next_incarnation();
        let incarnation = Arc::new(Incarnation::new(Arc::clone(&entry.node), number));
        {
            let mut state = entry.node.state();
            state.incarnation = number;
            state.restarts = generation.0.saturating_sub(1);
            state.waiting_for = None;
        }
        let guard = IncarnationGuard::new(
            Arc::clone(&incarnation),
            Parent::Supervisor {
                supervisor: myself.clone(),
                key,
                generation,
                guard: Arc::clone(&self.guard),
            },
        );
        entry.incarnation = Some(Arc::clone(&incarnation));
        // If this fails, the guard is dropped, which reports that the incarnation is gone.
        if let Err(error) = entry.spec.factory.spawn(guard, Some(myself.get_cell())).await {
            tracing::debug!(child = ?incarnation, %error, "an actor was not spawned");
        }
        if let Some(cell) = incarnation.cell.get() {
            self.actors.insert(cell.get_id(), key);
        }
    }

    fn stop(&self, key: ChildKey) {
        if let Some(entry) = self.children.get(&key)
            && let Some(incarnation) = &entry.incarnation
        {
            entry.spec.factory.stop(incarnation);
        }
    }

    fn kill(&self, key: ChildKey) {
        if let Some(incarnation) = self.children.get(&key).and_then(|entry| entry.incarnation.as_ref()) {
            lifecycle_events::child_killed(incarnation);
            incarnation.stopping.cancel();
            incarnation.kill();
        }
    }

    fn status_changed(&self, key: ChildKey, state: ChildStatus) {
        let Some(entry) = self.children.get(&key) else { return };
        let status = match state {
            ChildStatus::Waiting => Status::Waiting,
            ChildStatus::Starting => Status::Starting,
            ChildStatus::Running => Status::Running,
            ChildStatus::Stopping => Status::Stopping,
            ChildStatus::Pending { due } => Status::Restarting { at: self.at(due) },
            ChildStatus::Finished => Status::Finished,
            ChildStatus::Quarantined => Status::Quarantined,
        };
        // The machine emits `Spawn` before `Starting`, so the event of a start shows the new incarnation's number.
        let (before, last_exit) = {
            let mut state = entry.node.state();
            (std::mem::replace(&mut state.status, status), state.last_exit.clone())
        };
        if before != status {
            entry.node.changes.notify_waiters();
            lifecycle_events::status_changed(&entry.node, status, last_exit.as_ref());
        }
    }

    fn give_up(&self, key: ChildKey) {
        if let Some(entry) = self.children.get(&key) {
            lifecycle_events::child_given_up(
                &entry.node,
                entry.incarnation.as_ref().map(|incarnation| incarnation.exit()).as_ref(),
            );
        }
    }

    fn remove_child(&mut self, key: ChildKey) {
        if let Some(entry) = self.children.remove(&key) {
            if let Some(actor) = entry.incarnation.as_ref().and_then(|incarnation| incarnation.cell.get()) {
                self.actors.remove(&actor.get_id());
            }
            lifecycle_events::child_removed(&entry.node);
        }
        self.guard.incarnation.node.remove_child(key);
    }

    /// Records that an initial child did not start. This becomes the supervisor's exit once the other children are
    /// gone.
    fn record_failed_start(&self, cause: StopCause) {
        if let StopCause::StartFailed(key) = cause
            && let Some(entry) = self.children.get(&key)
        {
            let exit = entry.incarnation.as_ref().map_or(Exit::Killed, |incarnation| incarnation.exit());
            let failure = StartFailure::Child(entry.spec.id.clone(), Arc::new(exit));
            self.guard.incarnation.record(Exit::StartFailed(failure));
        }
    }

    fn reply(&mut self, request: RequestId, reply: RequestReply) {
        match self.callers.remove(&request) {
            Some(PendingCaller::Start { id, reply: caller, .. }) => {
                // The caller may have stopped waiting.
                let _ = caller.send(self.start_result(id, reply));
            }
            Some(PendingCaller::Terminate { id, reply: caller }) => {
                let result = match reply {
                    RequestReply::Terminated => Ok(()),
                    RequestReply::ShuttingDown => Err(RequestError::ShuttingDown(self.id())),
                    _ => Err(RequestError::NotFound(id)),
                };
                let _ = caller.send(result);
            }
            None => {}
        }
    }

    fn start_result(&self, id: ChildId, reply: RequestReply) -> Result<Child, StartError> {
        let child = |key| {
            let entry = self.children.get(&key).ok_or_else(|| StartError::NotFound(id.clone()))?;
            let ChildEntry { spec, incarnation, .. } = entry;
            Ok(Child::new(spec.id.clone(), spec.factory.endpoint(), incarnation.clone()))
        };
        let last_exit = |key| self.children.get(&key).and_then(|entry| entry.node.state().last_exit.clone());
        match reply {
            RequestReply::Started { key } => child(key),
            RequestReply::AlreadyStarted { key } => {
                Err(child(key).map_or_else(|error| error, StartError::AlreadyStarted))
            }
            RequestReply::Quarantined { key } => Err(StartError::Quarantined { id, exit: last_exit(key) }),
            RequestReply::StartFailed { key } => {
                Err(StartError::Failed(last_exit(key).unwrap_or(Exit::Killed)))
            }
            RequestReply::Full { capacity } => Err(StartError::Full { capacity }),
            RequestReply::Cancelled | RequestReply::Terminated => Err(StartError::Terminated),
            RequestReply::ShuttingDown => Err(RequestError::ShuttingDown(self.id()).into()),
            RequestReply::NotFound => Err(StartError::NotFound(id)),
        }
    }

    fn id(&self) -> ChildId {
        self.guard.incarnation.id().clone()
    }
}

/// Kills all children that are left. So a killed supervisor kills everything below it. `ractor` does this as well, but
/// skips children that are just stopping.
impl Drop for SupervisorState {
    fn drop(&mut self) {
        for entry in self.children.values() {
            if let Some(incarnation) = &entry.incarnation {
                incarnation.stopping.cancel();
                incarnation.kill();
            }
        }
    }
}
