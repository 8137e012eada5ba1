//! Actors without actors: does what the machine says, and checks that it may be said.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::supervision::backoff::Backoff;
use crate::supervision::exit::ExitClass;
use crate::supervision::id::ChildId;
use crate::supervision::machine::{
    Answer, Effect, Generation, Input, Key, Machine, Moment, Plan, Policy, Shape, Ticket, Why,
};
use crate::supervision::policy::{Restart, Shutdown, Strategy};

pub(super) fn id(number: usize) -> ChildId {
    ChildId::new(number.to_string()).unwrap()
}

pub(super) fn policy(restart: Restart) -> Policy {
    Policy { restart, shutdown: Shutdown::Unlimited, backoff: Backoff::NONE }
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
    pub(super) asked: bool,
}

pub(super) struct World {
    pub(super) machine: Machine,
    shape: Shape,
    pub(super) now: Moment,
    pub(super) actors: BTreeMap<Key, Actor>,
    pub(super) ids: BTreeMap<Key, ChildId>,
    pub(super) spawned: HashMap<ChildId, u64>,
    tickets: u64,
    waiting: BTreeSet<Ticket>,
    pub(super) answers: HashMap<Ticket, Answer>,
    pub(super) is_ready: bool,
    /// All that were killed, in order.
    pub(super) killed: Vec<Key>,
    pub(super) ended: Option<Why>,
    /// The random bits of the next wait.
    pub(super) roll: u64,
}

impl World {
    pub(super) fn new(plan: Plan, children: Vec<(ChildId, Policy)>) -> Self {
        let mut world = Self {
            machine: Machine::new(plan),
            shape: plan.shape,
            now: Moment(Duration::ZERO),
            actors: BTreeMap::new(),
            ids: BTreeMap::new(),
            spawned: HashMap::new(),
            tickets: 0,
            waiting: BTreeSet::new(),
            answers: HashMap::new(),
            is_ready: false,
            killed: Vec::new(),
            ended: None,
            roll: 0,
        };
        world.tell(Input::Boot { children });
        world
    }

    pub(super) fn tell(&mut self, input: Input) {
        let is_terminate = matches!(input, Input::Terminate { .. });
        for effect in self.machine.step(self.now, input) {
            self.act(effect, is_terminate);
        }
    }

    fn act(&mut self, effect: Effect, is_terminate: bool) {
        assert!(self.ended.is_none() || matches!(effect, Effect::Answer { .. }), "{effect:?} after the end");
        match effect.clone() {
            Effect::Adopt { id, key, .. } => {
                assert!(self.ids.insert(key, id).is_none());
            }
            Effect::Spawn { key, generation } => self.spawn(key, generation),
            Effect::Stop { key } | Effect::Kill { key } => {
                let is_kill = matches!(effect, Effect::Kill { .. });
                let behind = self.actors.range(Key(key.0 + 1)..).any(|(_, actor)| actor.asked);
                let is_ordered = matches!(self.shape, Shape::Ordered { .. });
                let actor = self.actors.get_mut(&key).expect("only what is there is stopped");
                if is_kill {
                    self.killed.push(key);
                }
                if is_kill && actor.leaves && !actor.asked {
                    // It goes by itself, and its time to go is over: that has nothing to do with the others.
                    return;
                }
                // Out of turn go those that somebody terminates, and those that took too long to stop.
                let is_alone = is_terminate || actor.asked;
                assert!(!is_ordered || is_alone || !behind, "{key:?} stops before those behind it");
                actor.asked = true;
            }
            Effect::Answer { ticket, answer } => {
                assert!(self.waiting.remove(&ticket), "{ticket:?} is answered once");
                self.answers.insert(ticket, answer);
            }
            Effect::Forget { key } => {
                assert!(!self.actors.contains_key(&key), "{key:?} is forgotten while it is there");
                self.ids.remove(&key);
            }
            Effect::Became { key, .. } | Effect::GiveUp { key } => assert!(self.ids.contains_key(&key)),
            Effect::Ready => self.is_ready = true,
            Effect::Closing { .. } => {}
            Effect::Exit { why } => {
                assert!(
                    self.actors.is_empty() && self.ids.is_empty(),
                    "the supervisor ends before its children"
                );
                self.ended = Some(why);
            }
        }
    }

    fn spawn(&mut self, key: Key, generation: Generation) {
        if let Shape::Ordered { strategy: Strategy::OneForAll | Strategy::RestForOne, .. } = self.shape {
            let mut before = self.actors.range(..key);
            assert!(before.all(|(_, actor)| actor.run != Run::Starting), "{key:?} overtakes one before it");
            let mut behind = self.actors.range(key..);
            assert!(
                behind.all(|(_, actor)| !actor.asked && actor.run != Run::Ended),
                "{key:?} starts too early"
            );
        }
        let actor = Actor { generation, run: Run::Starting, leaves: false, asked: false };
        let before = self.actors.insert(key, actor);
        assert!(before.is_none(), "{key:?} overlaps its last incarnation");
        *self.spawned.entry(self.ids[&key].clone()).or_default() += 1;
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.waiting.insert(Ticket(self.tickets));
        Ticket(self.tickets)
    }

    pub(super) fn start(&mut self, id: ChildId, policy: Policy) -> Ticket {
        let ticket = self.ticket();
        self.tell(Input::Start { ticket, id, policy });
        ticket
    }

    pub(super) fn restart(&mut self, id: ChildId) -> Ticket {
        let ticket = self.ticket();
        self.tell(Input::Restart { ticket, id });
        ticket
    }

    pub(super) fn terminate(&mut self, id: ChildId) -> Ticket {
        let ticket = self.ticket();
        self.tell(Input::Terminate { ticket, id });
        ticket
    }

    pub(super) fn started(&mut self, key: Key) {
        let Some(actor) = self.actors.get_mut(&key).filter(|actor| actor.run == Run::Starting) else {
            return;
        };
        actor.run = Run::Up;
        let generation = actor.generation;
        self.tell(Input::Started { key, generation });
    }

    pub(super) fn leave(&mut self, key: Key) {
        let Some(actor) = self.actors.get_mut(&key).filter(|actor| actor.run == Run::Up) else { return };
        actor.leaves = true;
        let generation = actor.generation;
        self.tell(Input::Leaving { key, generation });
    }

    /// It ends; what is below it lives on.
    pub(super) fn end(&mut self, key: Key, exit: ExitClass) {
        let Some(actor) = self.actors.get_mut(&key).filter(|actor| actor.run != Run::Ended) else { return };
        actor.run = Run::Ended;
        let generation = actor.generation;
        self.tell(Input::Ended { key, generation, exit, roll: self.roll });
    }

    /// Nothing of it is left.
    pub(super) fn gone(&mut self, key: Key, exit: ExitClass) {
        let Some(actor) = self.actors.remove(&key) else { return };
        self.tell(Input::Gone { key, generation: actor.generation, exit, roll: self.roll });
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
            let next =
                self.actors.iter().find(|(_, actor)| actor.asked || actor.leaves || actor.run != Run::Up);
            match next.map(|(key, actor)| (*key, *actor)) {
                Some((key, Actor { asked: false, run: Run::Starting, .. })) => self.started(key),
                Some((key, _)) => self.gone(key, ExitClass::Shutdown),
                None => match self.machine.next_timer() {
                    Some(at) => self.advance(at.since(self.now)),
                    None => return,
                },
            }
        }
    }

    pub(super) fn key(&self, id: &ChildId) -> Option<Key> {
        self.ids.iter().find(|(_, other)| *other == id).map(|(key, _)| *key)
    }

    pub(super) fn is_up(&self, id: &ChildId) -> bool {
        self.key(id).is_some_and(|key| self.actors.get(&key).is_some_and(|actor| actor.run == Run::Up))
    }

    pub(super) fn unanswered(&self) -> usize {
        self.waiting.len()
    }
}
