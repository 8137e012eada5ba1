//! Actors without actors: does what the machine says, and checks that it may be said.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::supervision::machine::{
    ChildKey, ChildPolicy, ChildrenKind, Effect, Generation, Input, Machine, RequestId, RequestReply,
    StopCause, SupervisorPolicy, Uptime,
};
use crate::supervision::specs::backoff::Backoff;
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::policy::{Restart, Shutdown, Strategy};

pub(super) fn id(number: usize) -> ChildId {
    ChildId::new(number.to_string()).unwrap()
}

pub(super) fn policy(restart: Restart) -> ChildPolicy {
    ChildPolicy { restart, shutdown: Shutdown::Unlimited, backoff: Backoff::NONE }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Starting,
    Up,
    /// It ended; something below it is still there.
    Ended,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Actor {
    pub(super) generation: Generation,
    pub(super) run: Run,
    /// It said that it goes, so its own time to go is running.
    leaves: bool,
    /// It was stopped or killed.
    pub(super) stop_requested: bool,
}

pub(super) struct Simulation {
    pub(super) machine: Machine,
    children_kind: ChildrenKind,
    pub(super) now: Uptime,
    pub(super) actors: BTreeMap<ChildKey, Actor>,
    pub(super) ids: BTreeMap<ChildKey, ChildId>,
    pub(super) spawned: HashMap<ChildId, u64>,
    tickets: u64,
    waiting: BTreeSet<RequestId>,
    pub(super) answers: HashMap<RequestId, RequestReply>,
    pub(super) is_ready: bool,
    /// All that were killed, in order.
    pub(super) killed: Vec<ChildKey>,
    pub(super) child_ended: Option<StopCause>,
    /// The random bits of the next wait.
    pub(super) random: u64,
}

impl Simulation {
    pub(super) fn new(supervisor_policy: SupervisorPolicy, children: Vec<(ChildId, ChildPolicy)>) -> Self {
        let mut simulation = Self {
            machine: Machine::new(supervisor_policy),
            children_kind: supervisor_policy.children_kind,
            now: Uptime(Duration::ZERO),
            actors: BTreeMap::new(),
            ids: BTreeMap::new(),
            spawned: HashMap::new(),
            tickets: 0,
            waiting: BTreeSet::new(),
            answers: HashMap::new(),
            is_ready: false,
            killed: Vec::new(),
            child_ended: None,
            random: 0,
        };
        simulation.tell(Input::Boot { children });
        simulation
    }

    pub(super) fn tell(&mut self, input: Input) {
        let is_terminate = matches!(input, Input::Terminate { .. });
        for effect in self.machine.step(self.now, input) {
            self.act(effect, is_terminate);
        }
    }

    fn act(&mut self, effect: Effect, is_terminate: bool) {
        assert!(
            self.child_ended.is_none() || matches!(effect, Effect::Reply { .. }),
            "{effect:?} after the end"
        );
        match effect.clone() {
            Effect::Insert { id, key, .. } => {
                assert!(self.ids.insert(key, id).is_none());
            }
            Effect::Spawn { key, generation } => self.spawn(key, generation),
            Effect::Stop { key } | Effect::Kill { key } => {
                let is_kill = matches!(effect, Effect::Kill { .. });
                let next_key =
                    self.actors.range(ChildKey(key.0 + 1)..).any(|(_, actor)| actor.stop_requested);
                let is_ordered = matches!(self.children_kind, ChildrenKind::Ordered { .. });
                let actor = self.actors.get_mut(&key).expect("only what is there is stopped");
                if is_kill {
                    self.killed.push(key);
                }
                if is_kill && actor.leaves && !actor.stop_requested {
                    // It goes by itself, and its time to go is over: that has nothing to do with the others.
                    return;
                }
                // Out of turn go those that somebody terminates, and those that took too long to stop.
                let is_alone = is_terminate || actor.stop_requested;
                assert!(!is_ordered || is_alone || !next_key, "{key:?} stops before those behind it");
                actor.stop_requested = true;
            }
            Effect::Reply { request, reply } => {
                assert!(self.waiting.remove(&request), "{request:?} is answered once");
                self.answers.insert(request, reply);
            }
            Effect::Remove { key } => {
                assert!(!self.actors.contains_key(&key), "{key:?} is forgotten while it is there");
                self.ids.remove(&key);
            }
            Effect::StatusChanged { key, .. } | Effect::GiveUp { key } => {
                assert!(self.ids.contains_key(&key))
            }
            Effect::Ready => self.is_ready = true,
            Effect::Stopping { .. } => {}
            Effect::Exit { cause } => {
                assert!(
                    self.actors.is_empty() && self.ids.is_empty(),
                    "the supervisor ends before its children"
                );
                self.child_ended = Some(cause);
            }
        }
    }

    fn spawn(&mut self, key: ChildKey, generation: Generation) {
        if let ChildrenKind::Ordered { strategy: Strategy::OneForAll | Strategy::RestForOne, .. } =
            self.children_kind
        {
            let mut before = self.actors.range(..key);
            assert!(before.all(|(_, actor)| actor.run != Run::Starting), "{key:?} overtakes one before it");
            let mut next_key = self.actors.range(key..);
            assert!(
                next_key.all(|(_, actor)| !actor.stop_requested && actor.run != Run::Ended),
                "{key:?} starts too early"
            );
        }
        let actor = Actor { generation, run: Run::Starting, leaves: false, stop_requested: false };
        let before = self.actors.insert(key, actor);
        assert!(before.is_none(), "{key:?} overlaps its last incarnation");
        *self.spawned.entry(self.ids[&key].clone()).or_default() += 1;
    }

    fn request(&mut self) -> RequestId {
        self.tickets += 1;
        self.waiting.insert(RequestId(self.tickets));
        RequestId(self.tickets)
    }

    pub(super) fn start(&mut self, id: ChildId, policy: ChildPolicy) -> RequestId {
        let request = self.request();
        self.tell(Input::Start { request, id, policy });
        request
    }

    pub(super) fn restart(&mut self, id: ChildId) -> RequestId {
        let request = self.request();
        self.tell(Input::Restart { request, id });
        request
    }

    pub(super) fn terminate(&mut self, id: ChildId) -> RequestId {
        let request = self.request();
        self.tell(Input::Terminate { request, id });
        request
    }

    pub(super) fn child_started(&mut self, key: ChildKey) {
        let Some(actor) = self.actors.get_mut(&key).filter(|actor| actor.run == Run::Starting) else {
            return;
        };
        actor.run = Run::Up;
        let generation = actor.generation;
        self.tell(Input::Started { key, generation });
    }

    pub(super) fn leave(&mut self, key: ChildKey) {
        let Some(actor) = self.actors.get_mut(&key).filter(|actor| actor.run == Run::Up) else { return };
        actor.leaves = true;
        let generation = actor.generation;
        self.tell(Input::Leaving { key, generation });
    }

    /// It ends; what is below it lives on.
    pub(super) fn end(&mut self, key: ChildKey, exit: ExitClass) {
        let Some(actor) = self.actors.get_mut(&key).filter(|actor| actor.run != Run::Ended) else { return };
        actor.run = Run::Ended;
        let generation = actor.generation;
        self.tell(Input::Ended { key, generation, exit, random: self.random });
    }

    /// Nothing of it is left.
    pub(super) fn child_gone(&mut self, key: ChildKey, exit: ExitClass) {
        let Some(actor) = self.actors.remove(&key) else { return };
        self.tell(Input::Gone { key, generation: actor.generation, exit, random: self.random });
    }

    pub(super) fn advance(&mut self, time: Duration) {
        let until = self.now.after(time);
        while let Some(at) = self.machine.next_timer().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.tell(Input::Tick);
            assert!(
                self.machine.next_timer().is_none_or(|next| next > self.now),
                "a tick leaves a timer that rang"
            );
        }
        self.now = until;
    }

    /// Lets all that is under way come to its end, well, until nothing but time is waited for; then time too.
    pub(super) fn settle(&mut self) {
        loop {
            let next = self
                .actors
                .iter()
                .find(|(_, actor)| actor.stop_requested || actor.leaves || actor.run != Run::Up);
            match next.map(|(key, actor)| (*key, *actor)) {
                Some((key, Actor { stop_requested: false, run: Run::Starting, .. })) => {
                    self.child_started(key)
                }
                Some((key, _)) => self.child_gone(key, ExitClass::Shutdown),
                None => match self.machine.next_timer() {
                    Some(at) => self.advance(at.since(self.now)),
                    None => return,
                },
            }
        }
    }

    pub(super) fn key(&self, id: &ChildId) -> Option<ChildKey> {
        self.ids.iter().find(|(_, other)| *other == id).map(|(key, _)| *key)
    }

    pub(super) fn is_up(&self, id: &ChildId) -> bool {
        self.key(id).is_some_and(|key| self.actors.get(&key).is_some_and(|actor| actor.run == Run::Up))
    }

    pub(super) fn unanswered(&self) -> usize {
        self.waiting.len()
    }
}
