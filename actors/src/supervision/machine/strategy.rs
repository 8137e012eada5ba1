//! Actions on several children: the restart of a group, the stop of all children, and the order in which they stop and
//! start.

use super::child::{AfterExit, Phase, StartCause, StopRequested, next_key};
use super::step::{Machine, SupervisorPhase};
use super::types::{ChildKey, ChildrenKind, Effect, RequestReply, StopCause, Uptime};
use crate::supervision::specs::policy::Strategy;

impl Machine {
    /// Marks the group of the failed child `key` for a restart. The group stops in reverse order. Its members are
    /// restarted at `due` or later.
    pub(super) fn plan_group_restart(&mut self, key: ChildKey, due: Uptime) {
        let from = match self.policy.children_kind {
            ChildrenKind::Ordered { strategy: Strategy::OneForAll, .. } => ChildKey(0),
            ChildrenKind::Ordered { strategy: Strategy::RestForOne, .. } => next_key(key),
            ChildrenKind::Ordered { strategy: Strategy::OneForOne, .. } | ChildrenKind::Dynamic { .. } => {
                return;
            }
        };
        let group: Vec<ChildKey> =
            self.children.range(from..).map(|(other, _)| *other).filter(|other| *other != key).collect();
        for other in group {
            self.plan_restart(other, due);
        }
    }

    fn plan_restart(&mut self, key: ChildKey, due: Uptime) {
        let Some(child) = self.children.get_mut(&key) else { return };
        match child.phase {
            Phase::Starting | Phase::Up => {
                let after_exit = if child.policy.restart.is_temporary() {
                    AfterExit::Remove
                } else {
                    AfterExit::Restart { due }
                };
                child.planned_stop = Some(combine_next_steps(child.planned_stop, after_exit));
            }
            Phase::Leaving { stop_requested, after_exit: AfterExit::Restart { due: before } } => {
                child.phase = Phase::Leaving {
                    stop_requested,
                    after_exit: AfterExit::Restart { due: due.max(before) },
                };
            }
            Phase::Pending { due: before } => self.enter(key, Phase::Pending { due: due.max(before) }),
            // As in OTP, a finished child is started again with its group.
            Phase::Final(_) => self.enter(key, Phase::Pending { due }),
            // A waiting child is not started yet. A leaving child will not come back, or its own exit decides.
            Phase::Waiting | Phase::Leaving { .. } => {}
        }
    }

    /// Starts to stop the supervisor. Children that do not run are removed; the others are stopped, or their stop is
    /// planned if they have an order.
    pub(super) fn begin_stop(&mut self, now: Uptime, cause: StopCause) {
        if self.is_stopping() {
            return;
        }
        self.phase = SupervisorPhase::Stopping(cause);
        self.effects.push(Effect::Stopping { cause });
        let keys: Vec<ChildKey> = self.children.keys().copied().collect();
        for key in keys {
            self.stop_or_remove(now, key);
        }
    }

    fn stop_or_remove(&mut self, now: Uptime, key: ChildKey) {
        let is_dynamic = self.is_dynamic();
        let Some(child) = self.children.get_mut(&key) else { return };
        let waiting = child.successor.take();
        if child.is_living() {
            if is_dynamic {
                self.stop_child(now, key, AfterExit::Remove);
            } else {
                child.planned_stop = Some(AfterExit::Remove);
            }
        } else if let Phase::Leaving { stop_requested, .. } = child.phase {
            child.phase = Phase::Leaving { stop_requested, after_exit: AfterExit::Remove };
        } else {
            self.remove(key, RequestReply::ShuttingDown);
        }
        for (request, _) in waiting.into_iter().flat_map(|successor| successor.start_callers) {
            self.reply(request, RequestReply::ShuttingDown);
        }
    }

    /// Advances everything that has an order: which child stops next, which child may start, and whether the supervisor
    /// has started or ended.
    pub(super) fn advance(&mut self, now: Uptime) {
        if !self.is_dynamic() {
            self.stop_next(now);
            if !self.is_stopping() {
                self.start_next(now);
            }
        }
        match self.phase {
            SupervisorPhase::Starting if self.is_booted() => {
                self.phase = SupervisorPhase::Running;
                self.effects.push(Effect::Ready);
                // Under one-for-one, children that callers requested during the start can now start without waiting for
                // each other.
                self.advance(now);
            }
            SupervisorPhase::Stopping(cause) if self.children.is_empty() => {
                self.phase = SupervisorPhase::Terminated;
                self.effects.push(Effect::Exit { cause });
            }
            SupervisorPhase::Starting
            | SupervisorPhase::Running
            | SupervisorPhase::Stopping(_)
            | SupervisorPhase::Terminated => {}
        }
    }

    fn is_booted(&self) -> bool {
        let mut first = self
            .children
            .values()
            .filter(|child| child.start_cause.is_none() || child.start_cause == Some(StartCause::Boot));
        first.all(|child| child.is_settled())
    }

    /// Stops the last child whose stop is planned, once all stopped children after it are gone.
    fn stop_next(&mut self, now: Uptime) {
        for (key, child) in self.children.iter().rev() {
            match (child.phase, child.planned_stop) {
                (Phase::Leaving { stop_requested: StopRequested::Yes, .. }, _) => return,
                (_, Some(after_exit)) => {
                    let key = *key;
                    return self.stop_child(now, key, after_exit);
                }
                _ => {}
            }
        }
    }

    /// Starts the children that are due and whose turn it is.
    fn start_next(&mut self, now: Uptime) {
        let ChildrenKind::Ordered { strategy, .. } = self.policy.children_kind else { return };
        let keys: Vec<ChildKey> = self.children.keys().copied().collect();
        let mut are_earlier_siblings_settled = true;
        for key in keys {
            let Some(child) = self.children.get(&key) else { continue };
            let is_its_turn = match (strategy, child.phase) {
                (Strategy::OneForOne, Phase::Pending { .. }) => true,
                (Strategy::OneForOne, _) => {
                    self.phase == SupervisorPhase::Running || are_earlier_siblings_settled
                }
                (Strategy::OneForAll | Strategy::RestForOne, _) => {
                    are_earlier_siblings_settled && self.are_later_siblings_settled(key)
                }
            };
            let is_due = match child.phase {
                Phase::Waiting => true,
                Phase::Pending { due } => due <= now,
                Phase::Starting | Phase::Up | Phase::Leaving { .. } | Phase::Final(_) => false,
            };
            are_earlier_siblings_settled &= child.is_settled();
            if is_due && is_its_turn {
                self.spawn(key);
            }
        }
    }

    /// Whether no later sibling is stopping or will be stopped. A group starts only when all of it is gone.
    fn are_later_siblings_settled(&self, key: ChildKey) -> bool {
        self.children
            .range(next_key(key)..)
            .all(|(_, child)| child.planned_stop.is_none() && !child.is_leaving())
    }
}

/// Combines two next steps of a child whose stop is planned. A removal wins; of two restarts, the later one wins.
fn combine_next_steps(before: Option<AfterExit>, after_exit: AfterExit) -> AfterExit {
    match (before, after_exit) {
        (Some(AfterExit::Restart { due: before }), AfterExit::Restart { due }) => {
            AfterExit::Restart { due: due.max(before) }
        }
        (Some(AfterExit::Remove), _) => AfterExit::Remove,
        (_, after_exit) => after_exit,
    }
}
