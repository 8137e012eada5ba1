//! The machine itself: its state, the one way in, and what each report of a child means.

use std::collections::{BTreeMap, HashMap};

use super::child::{Asked, Asker, Child, Debut, Fate, Phase};
use super::timers::Timers;
use super::types::{Answer, Effect, Generation, Input, Key, Moment, Plan, Policy, Shape, Ticket, Why};
use super::window::Window;
use crate::supervision::exit::ExitClass;
use crate::supervision::id::ChildId;
use crate::supervision::policy::Shutdown;

/// The state of a supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(super) plan: Plan,
    pub(super) course: Course,
    /// Boxed: a map keeps room for many in each of its nodes, and most supervisors have few.
    pub(super) children: BTreeMap<Key, Box<Child>>,
    pub(super) keys: HashMap<ChildId, Key>,
    pub(super) timers: Timers,
    /// The restarts of all children, where they are one domain.
    pub(super) window: Window,
    pub(super) last_key: u64,
    pub(super) effects: Vec<Effect>,
}

/// Where a supervisor is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    Starting,
    Running,
    Stopping(Why),
    Over,
}

impl Machine {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            course: Course::Starting,
            children: BTreeMap::new(),
            keys: HashMap::new(),
            timers: Timers::default(),
            window: Window::default(),
            last_key: 0,
            effects: Vec::new(),
        }
    }

    /// Takes in what happened at `now` and says what is to be done. Times never go back.
    pub(crate) fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        if self.course != Course::Over {
            self.take_in(now, input);
            self.reconcile(now);
        } else if let Input::Start { ticket, .. }
        | Input::Restart { ticket, .. }
        | Input::Terminate { ticket, .. } = input
        {
            self.answer(ticket, Answer::ShuttingDown);
        }
        std::mem::take(&mut self.effects)
    }

    /// When it wants an [`Input::Tick`].
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        self.timers.next()
    }

    fn take_in(&mut self, now: Moment, input: Input) {
        match input {
            Input::Boot { children } => {
                for (id, policy) in children {
                    self.insert(id, policy, Debut::Boot, None);
                }
            }
            Input::Start { ticket, id, policy } => self.start(ticket, id, policy),
            Input::Restart { ticket, id } => self.restart(ticket, &id),
            Input::Terminate { ticket, id } => self.terminate(now, ticket, &id),
            Input::Started { key, generation } if self.is_current(key, generation) => self.started(now, key),
            Input::Leaving { key, generation } if self.is_current(key, generation) => self.leaving(now, key),
            Input::Ended { key, generation, exit, roll } if self.is_current(key, generation) => {
                self.ended(now, key, exit, roll);
            }
            Input::Gone { key, generation, exit, roll } if self.is_current(key, generation) => {
                self.ended(now, key, exit, roll);
                self.gone(now, key);
            }
            Input::Tick => self.tick(now),
            Input::Stop => self.close(now, Why::Asked),
            Input::Started { .. } | Input::Leaving { .. } | Input::Ended { .. } | Input::Gone { .. } => {}
        }
    }

    /// Whether a report is of what runs now. Late ones, and those of children nobody knows any more, change nothing.
    pub(crate) fn is_current(&self, key: Key, generation: Generation) -> bool {
        self.children.get(&key).is_some_and(|child| child.spawned == generation.0)
    }

    /// Which incarnation of a child was spawned last.
    pub(crate) fn generation(&self, key: Key) -> Option<Generation> {
        self.children.get(&key).map(|child| Generation(child.spawned))
    }

    fn started(&mut self, now: Moment, key: Key) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if child.phase != Phase::Starting {
            return;
        }
        child.up_since = Some(now);
        child.debut = None;
        child.failed_starts = 0;
        let starters = std::mem::take(&mut child.starters);
        self.enter(key, Phase::Up);
        for (ticket, asker) in starters {
            let answer = match asker {
                Asker::First => Answer::Started { key },
                Asker::Later => Answer::AlreadyStarted { key },
            };
            self.answer(ticket, answer);
        }
    }

    /// It goes by itself, in its own time but not for ever.
    fn leaving(&mut self, now: Moment, key: Key) {
        let Some(child) = self.children.get(&key) else { return };
        if child.phase != Phase::Up || child.marked.is_some() {
            return;
        }
        let patience = child.policy.shutdown.patience();
        self.enter(key, Phase::Leaving { asked: Asked::No, fate: Fate::Undecided });
        if let Some(patience) = patience {
            self.timers.set(key, now.after(patience));
        }
    }

    /// Nothing of it is left, so its fate may come.
    fn gone(&mut self, now: Moment, key: Key) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let Phase::Leaving { fate, .. } = child.phase else { return };
        self.timers.clear(key);
        if child.successor.is_some() {
            return self.forget(key, Answer::Cancelled);
        }
        match fate {
            Fate::Forget | Fate::Undecided => {
                let answer = self.answer_to_starters(key);
                self.forget(key, answer);
            }
            Fate::Rest(rest) => {
                let starters = std::mem::take(&mut child.starters);
                child.debut = None;
                self.enter(key, Phase::Resting(rest));
                for (ticket, _) in starters {
                    self.answer(ticket, Answer::StartFailed { key });
                }
            }
            Fate::Restart { due } => {
                self.enter(key, Phase::Pending { due });
                if self.is_dynamic() && due <= now {
                    self.spawn(key);
                }
            }
        }
    }

    fn answer_to_starters(&self, key: Key) -> Answer {
        match (self.course, self.children.get(&key).map(|child| &**child)) {
            (Course::Stopping(_), _) => Answer::ShuttingDown,
            // Its end was its own: whoever waited for its start learns how it failed.
            (_, Some(Child { phase: Phase::Leaving { asked: Asked::No, .. }, .. })) => {
                Answer::StartFailed { key }
            }
            _ => Answer::Cancelled,
        }
    }

    fn tick(&mut self, now: Moment) {
        while let Some(key) = self.timers.pop(now) {
            match self.children.get(&key).map(|child| child.phase) {
                Some(Phase::Leaving { .. }) => self.effects.push(Effect::Kill { key }),
                Some(Phase::Pending { .. }) if self.is_dynamic() => self.spawn(key),
                // In order, its turn is found when all is looked over.
                _ => {}
            }
        }
    }

    /// Puts a new child behind all others.
    pub(super) fn insert(
        &mut self,
        id: ChildId,
        policy: Policy,
        debut: Debut,
        ticket: Option<Ticket>,
    ) -> Key {
        self.last_key += 1;
        let key = Key(self.last_key);
        self.keys.insert(id.clone(), key);
        self.children.insert(key, Box::new(Child::new(id.clone(), policy, debut)));
        self.effects.push(Effect::Adopt { ticket, id, key });
        self.enter(key, Phase::Waiting);
        key
    }

    pub(super) fn spawn(&mut self, key: Key) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.spawned += 1;
        child.up_since = None;
        child.marked = None;
        let generation = Generation(child.spawned);
        self.timers.clear(key);
        self.effects.push(Effect::Spawn { key, generation });
        self.enter(key, Phase::Starting);
    }

    /// Stops a living child, as its policy says.
    pub(super) fn stop_child(&mut self, now: Moment, key: Key, fate: Fate) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.marked = None;
        let shutdown = child.policy.shutdown;
        self.timers.clear(key);
        self.enter(key, Phase::Leaving { asked: Asked::Yes, fate });
        match shutdown {
            Shutdown::Kill => self.effects.push(Effect::Kill { key }),
            Shutdown::After(time) => {
                self.timers.set(key, now.after(time));
                self.effects.push(Effect::Stop { key });
            }
            Shutdown::Unlimited => self.effects.push(Effect::Stop { key }),
        }
    }

    /// Forgets a child of which nothing is left; what waited for its place takes it.
    pub(super) fn forget(&mut self, key: Key, to_starters: Answer) {
        let Some(child) = self.children.remove(&key) else { return };
        self.keys.remove(&child.id);
        self.timers.clear(key);
        for (ticket, _) in child.starters {
            self.answer(ticket, to_starters);
        }
        for ticket in child.enders {
            self.answer(ticket, Answer::Terminated);
        }
        self.effects.push(Effect::Forget { key });
        if let Some(successor) = child.successor {
            let ticket = successor.first();
            let key = self.insert(child.id, successor.policy, Debut::Caller, ticket);
            if let Some(next) = self.children.get_mut(&key) {
                next.starters = successor.starters;
            }
            if self.is_dynamic() {
                self.spawn(key);
            }
        }
    }

    pub(super) fn enter(&mut self, key: Key, phase: Phase) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.phase = phase;
        let state = child.state();
        if let Phase::Pending { due } = phase {
            self.timers.set(key, due);
        }
        self.effects.push(Effect::Became { key, state });
    }

    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.effects.push(Effect::Answer { ticket, answer });
    }

    pub(super) const fn is_dynamic(&self) -> bool {
        matches!(self.plan.shape, Shape::Dynamic { .. })
    }

    pub(super) const fn is_stopping(&self) -> bool {
        matches!(self.course, Course::Stopping(_) | Course::Over)
    }

    /// What its end means to a child is decided once: when it is first heard of.
    fn ended(&mut self, now: Moment, key: Key, exit: ExitClass, roll: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if !child.is_living() {
            return;
        }
        // It was about to be stopped anyway.
        if let Some(fate) = child.marked.take() {
            self.timers.clear(key);
            return self.enter(key, Phase::Leaving { asked: Asked::Yes, fate });
        }
        self.decide(now, key, exit, roll);
    }
}
