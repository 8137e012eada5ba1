//! The children of one incarnation of a supervisor: the machine, and what it only has keys for.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use ractor::{ActorId, ActorRef};
use tokio::sync::oneshot;

use super::alarm::Alarm;
use super::control::{Control, StartReply};
use super::error::{RequestError, StartError};
use super::exit::{Exit, StartFailure};
use super::handle::Child;
use super::id::ChildId;
use super::life::{Above, Life, Presence};
use super::machine::{
    Answer, Effect, Generation, Input, Key, Machine, Moment, Plan, Shape, State, Ticket, Why,
};
use super::node::Node;
use super::spec::ChildSpec;
use super::transition;
use super::tree::Status;

/// Everything that one incarnation of a supervisor keeps.
pub(crate) struct Nursery {
    machine: Machine,
    shape: Shape,
    cots: HashMap<Key, Cot>,
    /// Whose early news come.
    actors: HashMap<ActorId, Key>,
    callers: HashMap<Ticket, Caller>,
    last_ticket: u64,
    /// The first children's specs, until the machine has given them keys.
    first: HashMap<ChildId, Arc<ChildSpec>>,
    alarm: Option<Alarm>,
    epoch: Deadline,
    dice: Dice,
    presence: Arc<Presence>,
}

/// One child.
struct Cot {
    spec: Arc<ChildSpec>,
    node: Arc<Node>,
    /// The incarnation that runs, or ran last.
    life: Option<Arc<Life>>,
}

/// Who waits for an answer.
pub(crate) enum Caller {
    /// With the spec that it brought, until that has its key.
    Starter {
        spec: Option<Arc<ChildSpec>>,
        id: ChildId,
        reply: StartReply,
    },
    Ender {
        id: ChildId,
        reply: oneshot::Sender<Result<(), RequestError>>,
    },
}

/// Random bits for the waits. Nothing depends on them but that a thousand children do not wait for the same time.
struct Dice {
    state: RandomState,
    rolled: u64,
}

impl Dice {
    fn roll(&mut self) -> u64 {
        self.rolled += 1;
        self.state.hash_one(self.rolled)
    }
}

impl Nursery {
    pub(crate) fn new(plan: Plan, presence: Arc<Presence>) -> Self {
        Self {
            machine: Machine::new(plan),
            shape: plan.shape,
            cots: HashMap::new(),
            actors: HashMap::new(),
            callers: HashMap::new(),
            last_ticket: 0,
            first: HashMap::new(),
            alarm: None,
            epoch: SystemClock.deadline(Duration::ZERO),
            dice: Dice { state: RandomState::new(), rolled: 0 },
            presence,
        }
    }

    /// What the machine is told first.
    pub(crate) fn boot(&mut self, children: &[Arc<ChildSpec>]) -> Input {
        let policies = children.iter().map(|spec| (spec.id.clone(), spec.policy)).collect();
        self.first = children.iter().map(|spec| (spec.id.clone(), Arc::clone(spec))).collect();
        Input::Boot { children: policies }
    }

    /// A number for somebody who waits.
    pub(crate) fn ticket(&mut self, caller: Caller) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.callers.insert(ticket, caller);
        ticket
    }

    /// What the machine is told of a child that somebody brings; nothing when it does not fit here.
    pub(crate) fn admit(&mut self, spec: Arc<ChildSpec>, reply: StartReply) -> Option<Input> {
        let admitted = match self.shape {
            Shape::Ordered { auto_shutdown, .. } => auto_shutdown.admits(&spec),
            Shape::Dynamic { .. } => super::policy::AutoShutdown::Never.admits(&spec),
        };
        if let Err(error) = admitted {
            // The caller may have gone.
            let _ = reply.send(Err(error.into()));
            return None;
        }
        let (id, policy) = (spec.id.clone(), spec.policy);
        let ticket = self.ticket(Caller::Starter { spec: Some(spec), id: id.clone(), reply });
        Some(Input::Start { ticket, id, policy })
    }

    /// What the machine is told of an end that `ractor` tells of; nothing when it is of nobody we know.
    pub(crate) fn ended(&mut self, actor: ActorId) -> Option<Input> {
        let key = *self.actors.get(&actor)?;
        let generation = self.generation(key, actor)?;
        let exit = self.cots.get(&key)?.life.as_ref()?.exit().class();
        Some(Input::Ended { key, generation, exit, roll: self.dice.roll() })
    }

    /// The generation of the incarnation that has this actor, when it is the last.
    fn generation(&self, key: Key, actor: ActorId) -> Option<Generation> {
        let life = self.cots.get(&key)?.life.as_ref()?;
        let is_last = life.cell.get().is_some_and(|cell| cell.get_id() == actor);
        is_last.then(|| self.machine.generation(key)).flatten()
    }

    /// What the machine is told of a child of which nothing is left.
    pub(crate) fn gone(&mut self, key: Key, generation: Generation, exit: Exit) -> Input {
        let class = exit.class();
        if self.machine.is_current(key, generation) {
            if let Some(cot) = self.cots.get(&key) {
                if let Some(actor) = cot.life.as_ref().and_then(|life| life.cell.get()) {
                    self.actors.remove(&actor.get_id());
                }
                transition::gone(&cot.node, &exit);
                cot.node.state().last_exit = Some(exit);
            }
        } else {
            tracing::debug!(supervisor = ?self.presence.life, ?key, ?generation, "a late end is ignored");
        }
        Input::Gone { key, generation, exit: class, roll: self.dice.roll() }
    }

    /// Tells the machine, does what it says, and returns how the supervisor ends when it does.
    pub(crate) async fn take_in(&mut self, myself: &ActorRef<Control>, input: Input) -> Option<Exit> {
        let mut end = None;
        for effect in self.machine.step(self.now(), input) {
            match effect {
                Effect::Adopt { ticket, id, key } => self.adopt(ticket, &id, key),
                Effect::Spawn { key, generation } => self.spawn(myself, key, generation).await,
                Effect::Stop { key } => self.stop(key),
                Effect::Kill { key } => self.kill(key),
                Effect::Became { key, state } => self.became(key, state),
                Effect::Answer { ticket, answer } => self.answer(ticket, answer),
                Effect::GiveUp { key } => self.give_up(key),
                Effect::Forget { key } => self.forget(key),
                Effect::Ready => self.presence.report_started(),
                Effect::Closing { why } => {
                    self.presence.set_root_status(Status::Stopping);
                    self.note_failed_start(why);
                    transition::closing(&self.presence.life, why);
                }
                Effect::Exit { .. } => {
                    // The first word stands: that of a start that failed.
                    end = Some(Exit::Shutdown);
                }
            }
        }
        self.set_alarm(myself);
        end
    }

    fn now(&self) -> Moment {
        let now = SystemClock.deadline(Duration::ZERO).instant();
        Moment(match (now, self.epoch.instant()) {
            (Some(now), Some(epoch)) => now.saturating_duration_since(epoch),
            _ => Duration::ZERO,
        })
    }

    fn at(&self, moment: Moment) -> Deadline {
        let instant = self.epoch.instant().and_then(|epoch| epoch.checked_add(moment.0));
        instant.map_or(Deadline::NEVER, Deadline::at)
    }

    fn set_alarm(&mut self, myself: &ActorRef<Control>) {
        let next = self.machine.next_timer().map(|moment| self.at(moment));
        if next != self.alarm.as_ref().map(Alarm::at) {
            self.alarm = next.map(|at| {
                let myself = myself.clone();
                // It may be over by then.
                Alarm::set(at, move || drop(myself.send_message(Control::Tick)))
            });
        }
    }

    fn adopt(&mut self, ticket: Option<Ticket>, id: &ChildId, key: Key) {
        let spec = match ticket {
            Some(ticket) => match self.callers.get_mut(&ticket) {
                Some(Caller::Starter { spec, .. }) => spec.take(),
                Some(Caller::Ender { .. }) | None => None,
            },
            None => self.first.remove(id),
        };
        let Some(spec) = spec else { return };
        let above = &self.presence.life.node;
        let node = Node::new(spec.id.clone(), spec.kind, &spec.labels, spec.gauge.clone(), Some(above));
        let node = Arc::new(node);
        above.adopt(key, Arc::clone(&node));
        self.cots.insert(key, Cot { spec, node, life: None });
    }

    async fn spawn(&mut self, myself: &ActorRef<Control>, key: Key, generation: Generation) {
        let Some(cot) = self.cots.get_mut(&key) else { return };
        let incarnation = cot.spec.hatch.next_incarnation();
        let life = Arc::new(Life::new(Arc::clone(&cot.node), incarnation));
        {
            let mut state = cot.node.state();
            state.incarnation = incarnation;
            state.restarts = generation.0.saturating_sub(1);
            state.waits_for = None;
        }
        let presence = Presence::new(
            Arc::clone(&life),
            Above::Supervisor {
                supervisor: myself.clone(),
                key,
                generation,
                presence: Arc::clone(&self.presence),
            },
        );
        cot.life = Some(Arc::clone(&life));
        // Where this fails, its presence is dropped, and so we hear that it is gone.
        if let Err(error) = cot.spec.hatch.spawn(presence, Some(myself.get_cell())).await {
            tracing::debug!(child = ?life, %error, "an actor was not spawned");
        }
        if let Some(cell) = life.cell.get() {
            self.actors.insert(cell.get_id(), key);
        }
    }

    fn stop(&self, key: Key) {
        if let Some(cot) = self.cots.get(&key)
            && let Some(life) = &cot.life
        {
            cot.spec.hatch.stop(life);
        }
    }

    fn kill(&self, key: Key) {
        if let Some(life) = self.cots.get(&key).and_then(|cot| cot.life.as_ref()) {
            transition::killed(life);
            life.stopping.cancel();
            life.kill();
        }
    }

    fn became(&self, key: Key, state: State) {
        let Some(cot) = self.cots.get(&key) else { return };
        let status = match state {
            State::Waiting => Status::Waiting,
            State::Starting => Status::Starting,
            State::Running => Status::Running,
            State::Stopping => Status::Stopping,
            State::Pending { due } => Status::Restarting { at: self.at(due) },
            State::Finished => Status::Finished,
            State::Quarantined => Status::Quarantined,
        };
        // What `spawn` is about to count is told as what it will be.
        let (before, last_exit) = {
            let mut state = cot.node.state();
            (std::mem::replace(&mut state.status, status), state.last_exit.clone())
        };
        if before != status {
            cot.node.changes.notify_waiters();
            transition::became(&cot.node, status, last_exit.as_ref());
        }
    }

    fn give_up(&self, key: Key) {
        if let Some(cot) = self.cots.get(&key) {
            transition::given_up(&cot.node, cot.life.as_ref().map(|life| life.exit()).as_ref());
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some(cot) = self.cots.remove(&key) {
            if let Some(actor) = cot.life.as_ref().and_then(|life| life.cell.get()) {
                self.actors.remove(&actor.get_id());
            }
            transition::forgotten(&cot.node);
        }
        self.presence.life.node.forget(key);
    }

    /// One of the first children did not start: the supervisor ends with that, once the others are gone.
    fn note_failed_start(&self, why: Why) {
        if let Why::StartFailed(key) = why
            && let Some(cot) = self.cots.get(&key)
        {
            let exit = cot.life.as_ref().map_or(Exit::Killed, |life| life.exit());
            let failure = StartFailure::Child(cot.spec.id.clone(), Arc::new(exit));
            self.presence.life.record(Exit::StartFailed(failure));
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match self.callers.remove(&ticket) {
            Some(Caller::Starter { id, reply, .. }) => {
                let answer = self.to_starter(id, answer);
                // The caller may have gone.
                let _ = reply.send(answer);
            }
            Some(Caller::Ender { id, reply }) => {
                let answer = match answer {
                    Answer::Terminated => Ok(()),
                    Answer::ShuttingDown => Err(RequestError::ShuttingDown(self.id())),
                    _ => Err(RequestError::NotFound(id)),
                };
                let _ = reply.send(answer);
            }
            None => {}
        }
    }

    fn to_starter(&self, id: ChildId, answer: Answer) -> Result<Child, StartError> {
        let child = |key| {
            let cot = self.cots.get(&key);
            cot.map(|cot| Child::new(&cot.spec, cot.life.clone()))
                .ok_or_else(|| StartError::NotFound(id.clone()))
        };
        let last_exit = |key| self.cots.get(&key).and_then(|cot| cot.node.state().last_exit.clone());
        match answer {
            Answer::Started { key } => child(key),
            Answer::AlreadyStarted { key } => {
                Err(child(key).map_or_else(|error| error, StartError::AlreadyStarted))
            }
            Answer::Quarantined { key } => Err(StartError::Quarantined { id, exit: last_exit(key) }),
            Answer::StartFailed { key } => Err(StartError::Failed(last_exit(key).unwrap_or(Exit::Killed))),
            Answer::Full { capacity } => Err(StartError::Full { capacity }),
            Answer::Cancelled | Answer::Terminated => Err(StartError::Terminated),
            Answer::ShuttingDown => Err(RequestError::ShuttingDown(self.id()).into()),
            Answer::NotFound => Err(StartError::NotFound(id)),
        }
    }

    fn id(&self) -> ChildId {
        self.presence.life.id().clone()
    }
}

/// A supervisor that was killed takes all below it along. `ractor` does so too, but it passes over children that are in
/// the midst of their last words.
impl Drop for Nursery {
    fn drop(&mut self) {
        for cot in self.cots.values() {
            if let Some(life) = &cot.life {
                life.stopping.cancel();
                life.kill();
            }
        }
    }
}
