//! The state machine: its state, its single entry point, and the handling of each report about a child.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::child::{AfterExit, Child, Phase, StartCause, StartRequester, StopRequested};
use super::restart_limit::RestartWindow;
use super::types::{
    ChildKey, ChildPolicy, ChildrenKind, Effect, Generation, Input, RequestId, RequestReply, StopCause,
    SupervisorPolicy, Uptime,
};
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::policy::Shutdown;

/// The state of a supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(super) policy: SupervisorPolicy,
    pub(super) phase: SupervisorPhase,
    /// Boxed, because a map reserves room for several values in each node, and most supervisors have few children.
    pub(super) children: BTreeMap<ChildKey, Box<Child>>,
    pub(super) keys: HashMap<ChildId, ChildKey>,
    pub(super) timers: Timers,
    /// The restarts of all children. Used if they share a limit.
    pub(super) window: RestartWindow,
    pub(super) last_key: u64,
    pub(super) effects: Vec<Effect>,
}

/// The phase of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SupervisorPhase {
    Starting,
    Running,
    Stopping(StopCause),
    Terminated,
}

impl Machine {
    pub(crate) fn new(supervisor_policy: SupervisorPolicy) -> Self {
        Self {
            policy: supervisor_policy,
            phase: SupervisorPhase::Starting,
            children: BTreeMap::new(),
            keys: HashMap::new(),
            timers: Timers::default(),
            window: RestartWindow::default(),
            last_key: 0,
            effects: Vec::new(),
        }
    }

    /// Processes an input at the time `now`, and returns the effects to carry out. Times must not decrease.
    pub(crate) fn step(&mut self, now: Uptime, input: Input) -> Vec<Effect> {
        if self.phase != SupervisorPhase::Terminated {
            self.handle_input(now, input);
            self.advance(now);
        } else if let Input::Start { request, .. }
        | Input::Restart { request, .. }
        | Input::Terminate { request, .. } = input
        {
            self.reply(request, RequestReply::ShuttingDown);
        }
        std::mem::take(&mut self.effects)
    }

    /// The time at which the machine needs an [`Input::Tick`].
    pub(crate) fn next_timer(&self) -> Option<Uptime> {
        self.timers.next()
    }

    fn handle_input(&mut self, now: Uptime, input: Input) {
        match input {
            Input::Boot { children } => {
                for (id, policy) in children {
                    self.insert(id, policy, StartCause::Boot, None);
                }
            }
            Input::Start { request, id, policy } => self.start(request, id, policy),
            Input::Restart { request, id } => self.restart(request, &id),
            Input::Terminate { request, id } => self.terminate(now, request, &id),
            Input::Started { key, generation } if self.is_current(key, generation) => {
                self.child_started(now, key)
            }
            Input::Leaving { key, generation } if self.is_current(key, generation) => {
                self.child_leaving(now, key)
            }
            Input::Ended { key, generation, exit, random } if self.is_current(key, generation) => {
                self.child_ended(now, key, exit, random);
            }
            Input::Gone { key, generation, exit, random } if self.is_current(key, generation) => {
                self.child_ended(now, key, exit, random);
                self.child_gone(now, key);
            }
            Input::Tick => self.tick(now),
            Input::Stop => self.begin_stop(now, StopCause::Requested),
            Input::Started { .. } | Input::Leaving { .. } | Input::Ended { .. } | Input::Gone { .. } => {}
        }
    }

    /// Whether a report is about the current incarnation. Late reports, and those about unknown children, change
    /// nothing.
    pub(crate) fn is_current(&self, key: ChildKey, generation: Generation) -> bool {
        self.children.get(&key).is_some_and(|child| child.spawned == generation.0)
    }

    /// The generation of the last spawned incarnation of a child.
    pub(crate) fn generation(&self, key: ChildKey) -> Option<Generation> {
        self.children.get(&key).map(|child| Generation(child.spawned))
    }

    fn child_started(&mut self, now: Uptime, key: ChildKey) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if child.phase != Phase::Starting {
            return;
        }
        child.up_since = Some(now);
        child.start_cause = None;
        child.failed_starts = 0;
        let start_callers = std::mem::take(&mut child.start_callers);
        self.enter(key, Phase::Up);
        for (request, requester) in start_callers {
            let reply = match requester {
                StartRequester::First => RequestReply::Started { key },
                StartRequester::Later => RequestReply::AlreadyStarted { key },
            };
            self.reply(request, reply);
        }
    }

    /// Handles the report that a child stops by itself. Its shutdown timeout applies.
    fn child_leaving(&mut self, now: Uptime, key: ChildKey) {
        let Some(child) = self.children.get(&key) else { return };
        if child.phase != Phase::Up || child.planned_stop.is_some() {
            return;
        }
        let timeout = child.policy.shutdown.timeout();
        self.enter(
            key,
            Phase::Leaving { stop_requested: StopRequested::No, after_exit: AfterExit::Undecided },
        );
        if let Some(timeout) = timeout {
            self.timers.set(key, now.after(timeout));
        }
    }

    /// Handles the report that nothing of a child is left, and takes the decided step.
    fn child_gone(&mut self, now: Uptime, key: ChildKey) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let Phase::Leaving { after_exit, .. } = child.phase else { return };
        self.timers.clear(key);
        if child.successor.is_some() {
            return self.remove(key, RequestReply::Cancelled);
        }
        match after_exit {
            AfterExit::Remove | AfterExit::Undecided => {
                let reply = self.reply_to_start_callers(key);
                self.remove(key, reply);
            }
            AfterExit::Finish(final_state) => {
                let start_callers = std::mem::take(&mut child.start_callers);
                child.start_cause = None;
                self.enter(key, Phase::Final(final_state));
                for (request, _) in start_callers {
                    self.reply(request, RequestReply::StartFailed { key });
                }
            }
            AfterExit::Restart { due } => {
                self.enter(key, Phase::Pending { due });
                if self.is_dynamic() && due <= now {
                    self.spawn(key);
                }
            }
        }
    }

    fn reply_to_start_callers(&self, key: ChildKey) -> RequestReply {
        match (self.phase, self.children.get(&key).map(|child| &**child)) {
            (SupervisorPhase::Stopping(_), _) => RequestReply::ShuttingDown,
            // It ended by itself, so the callers that wait for its start get the error.
            (_, Some(Child { phase: Phase::Leaving { stop_requested: StopRequested::No, .. }, .. })) => {
                RequestReply::StartFailed { key }
            }
            _ => RequestReply::Cancelled,
        }
    }

    fn tick(&mut self, now: Uptime) {
        while let Some(key) = self.timers.pop(now) {
            match self.children.get(&key).map(|child| child.phase) {
                Some(Phase::Leaving { .. }) => self.effects.push(Effect::Kill { key }),
                Some(Phase::Pending { .. }) if self.is_dynamic() => self.spawn(key),
                // An ordered supervisor starts the child in `advance`, when its turn comes.
                _ => {}
            }
        }
    }

    /// Adds a child after all others.
    pub(super) fn insert(
        &mut self,
        id: ChildId,
        policy: ChildPolicy,
        start_cause: StartCause,
        request: Option<RequestId>,
    ) -> ChildKey {
        self.last_key += 1;
        let key = ChildKey(self.last_key);
        self.keys.insert(id.clone(), key);
        self.children.insert(key, Box::new(Child::new(id.clone(), policy, start_cause)));
        self.effects.push(Effect::Insert { request, id, key });
        self.enter(key, Phase::Waiting);
        key
    }

    pub(super) fn spawn(&mut self, key: ChildKey) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.spawned += 1;
        child.up_since = None;
        child.planned_stop = None;
        let generation = Generation(child.spawned);
        self.timers.clear(key);
        self.effects.push(Effect::Spawn { key, generation });
        self.enter(key, Phase::Starting);
    }

    /// Stops a running child as its shutdown policy says.
    pub(super) fn stop_child(&mut self, now: Uptime, key: ChildKey, after_exit: AfterExit) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.planned_stop = None;
        let shutdown = child.policy.shutdown;
        self.timers.clear(key);
        self.enter(key, Phase::Leaving { stop_requested: StopRequested::Yes, after_exit });
        match shutdown {
            Shutdown::Kill => self.effects.push(Effect::Kill { key }),
            Shutdown::After(time) => {
                self.timers.set(key, now.after(time));
                self.effects.push(Effect::Stop { key });
            }
            Shutdown::Unlimited => self.effects.push(Effect::Stop { key }),
        }
    }

    /// Removes a child of which nothing is left. Its successor takes its id.
    pub(super) fn remove(&mut self, key: ChildKey, start_reply: RequestReply) {
        let Some(child) = self.children.remove(&key) else { return };
        self.keys.remove(&child.id);
        self.timers.clear(key);
        for (request, _) in child.start_callers {
            self.reply(request, start_reply);
        }
        for request in child.stop_callers {
            self.reply(request, RequestReply::Terminated);
        }
        self.effects.push(Effect::Remove { key });
        if let Some(successor) = child.successor {
            let request = successor.first();
            let key = self.insert(child.id, successor.policy, StartCause::StartRequest, request);
            if let Some(next) = self.children.get_mut(&key) {
                next.start_callers = successor.start_callers;
            }
            if self.is_dynamic() {
                self.spawn(key);
            }
        }
    }

    pub(super) fn enter(&mut self, key: ChildKey, phase: Phase) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.phase = phase;
        let status = child.status();
        if let Phase::Pending { due } = phase {
            self.timers.set(key, due);
        }
        self.effects.push(Effect::StatusChanged { key, status });
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: RequestReply) {
        self.effects.push(Effect::Reply { request, reply });
    }

    pub(super) const fn is_dynamic(&self) -> bool {
        matches!(self.policy.children_kind, ChildrenKind::Dynamic { .. })
    }

    pub(super) const fn is_stopping(&self) -> bool {
        matches!(self.phase, SupervisorPhase::Stopping(_) | SupervisorPhase::Terminated)
    }

    /// Handles the first report of a child's end. Later ones have no effect, so the next step is decided once.
    fn child_ended(&mut self, now: Uptime, key: ChildKey, exit: ExitClass, random: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if !child.is_living() {
            return;
        }
        // It was going to be stopped, so the step that follows is known.
        if let Some(after_exit) = child.planned_stop.take() {
            self.timers.clear(key);
            return self.enter(key, Phase::Leaving { stop_requested: StopRequested::Yes, after_exit });
        }
        self.decide(now, key, exit, random);
    }
}

/// The timers of all children, ordered by time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers {
    order: BTreeSet<(Uptime, ChildKey)>,
    by_child: HashMap<ChildKey, Uptime>,
}

impl Timers {
    /// Sets the timer of a child, which has at most one.
    pub(crate) fn set(&mut self, key: ChildKey, at: Uptime) {
        self.clear(key);
        self.by_child.insert(key, at);
        self.order.insert((at, key));
    }

    pub(crate) fn clear(&mut self, key: ChildKey) {
        if let Some(at) = self.by_child.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    pub(crate) fn next(&self) -> Option<Uptime> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes the first timer that has expired, and returns its child.
    pub(crate) fn pop(&mut self, now: Uptime) -> Option<ChildKey> {
        let (at, key) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }

    /// How many children have a timer.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.by_child.len(), self.order.len());
        self.by_child.len()
    }
}
