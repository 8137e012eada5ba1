//! What is done to several children: the group of one that failed, all of them at the end, and the order in which they
//! stop and start.

use super::child::{Asked, Debut, Fate, Phase, behind};
use super::step::{Course, Machine};
use super::types::{Answer, Effect, Key, Moment, Shape, Why};
use crate::supervision::policy::Strategy;

impl Machine {
    /// Marks those that fall with `key`: their turn to stop is now, last first, and all are due at the same time.
    pub(super) fn mark_group(&mut self, key: Key, due: Moment) {
        let from = match self.plan.shape {
            Shape::Ordered { strategy: Strategy::OneForAll, .. } => Key(0),
            Shape::Ordered { strategy: Strategy::RestForOne, .. } => behind(key),
            Shape::Ordered { strategy: Strategy::OneForOne, .. } | Shape::Dynamic { .. } => return,
        };
        let group: Vec<Key> =
            self.children.range(from..).map(|(other, _)| *other).filter(|other| *other != key).collect();
        for other in group {
            self.mark(other, due);
        }
    }

    fn mark(&mut self, key: Key, due: Moment) {
        let Some(child) = self.children.get_mut(&key) else { return };
        match child.phase {
            Phase::Starting | Phase::Up => {
                let fate =
                    if child.policy.restart.is_temporary() { Fate::Forget } else { Fate::Restart { due } };
                child.marked = Some(later(child.marked, fate));
            }
            Phase::Leaving { asked, fate: Fate::Restart { due: before } } => {
                child.phase = Phase::Leaving { asked, fate: Fate::Restart { due: due.max(before) } };
            }
            Phase::Pending { due: before } => self.enter(key, Phase::Pending { due: due.max(before) }),
            // As in OTP, one that was done is started with its group.
            Phase::Resting(_) => self.enter(key, Phase::Pending { due }),
            // It was not started yet, it is not coming back, or it says by itself what becomes of it.
            Phase::Waiting | Phase::Leaving { .. } => {}
        }
    }

    /// Begins to stop: what does not run is forgotten, what runs is stopped.
    pub(super) fn close(&mut self, now: Moment, why: Why) {
        if self.is_stopping() {
            return;
        }
        self.course = Course::Stopping(why);
        self.effects.push(Effect::Closing { why });
        let keys: Vec<Key> = self.children.keys().copied().collect();
        for key in keys {
            self.close_child(now, key);
        }
    }

    fn close_child(&mut self, now: Moment, key: Key) {
        let is_dynamic = self.is_dynamic();
        let Some(child) = self.children.get_mut(&key) else { return };
        let waiting = child.successor.take();
        if child.is_living() {
            if is_dynamic {
                self.stop_child(now, key, Fate::Forget);
            } else {
                child.marked = Some(Fate::Forget);
            }
        } else if let Phase::Leaving { asked, .. } = child.phase {
            child.phase = Phase::Leaving { asked, fate: Fate::Forget };
        } else {
            self.forget(key, Answer::ShuttingDown);
        }
        for (ticket, _) in waiting.into_iter().flat_map(|successor| successor.starters) {
            self.answer(ticket, Answer::ShuttingDown);
        }
    }

    /// Looks over all that is in order: who is to stop next, who may start, and whether that was all.
    pub(super) fn reconcile(&mut self, now: Moment) {
        if !self.is_dynamic() {
            self.stop_marked(now);
            if !self.is_stopping() {
                self.start_due(now);
            }
        }
        match self.course {
            Course::Starting if self.is_booted() => {
                self.course = Course::Running;
                self.effects.push(Effect::Ready);
                // Those that were asked for meanwhile need not wait for each other.
                self.reconcile(now);
            }
            Course::Stopping(why) if self.children.is_empty() => {
                self.course = Course::Over;
                self.effects.push(Effect::Exit { why });
            }
            Course::Starting | Course::Running | Course::Stopping(_) | Course::Over => {}
        }
    }

    fn is_booted(&self) -> bool {
        let mut first =
            self.children.values().filter(|child| child.debut.is_none() || child.debut == Some(Debut::Boot));
        first.all(|child| child.is_settled())
    }

    /// Stops the last of those that are marked, once those behind it that were stopped are gone.
    fn stop_marked(&mut self, now: Moment) {
        for (key, child) in self.children.iter().rev() {
            match (child.phase, child.marked) {
                (Phase::Leaving { asked: Asked::Yes, .. }, _) => return,
                (_, Some(fate)) => {
                    let key = *key;
                    return self.stop_child(now, key, fate);
                }
                _ => {}
            }
        }
    }

    /// Starts those whose time and turn have come.
    fn start_due(&mut self, now: Moment) {
        let Shape::Ordered { strategy, .. } = self.plan.shape else { return };
        let keys: Vec<Key> = self.children.keys().copied().collect();
        let mut are_those_before_settled = true;
        for key in keys {
            let Some(child) = self.children.get(&key) else { continue };
            let is_its_turn = match (strategy, child.phase) {
                (Strategy::OneForOne, Phase::Pending { .. }) => true,
                (Strategy::OneForOne, _) => self.course == Course::Running || are_those_before_settled,
                (Strategy::OneForAll | Strategy::RestForOne, _) => {
                    are_those_before_settled && self.are_those_behind_still(key)
                }
            };
            let is_due = match child.phase {
                Phase::Waiting => true,
                Phase::Pending { due } => due <= now,
                Phase::Starting | Phase::Up | Phase::Leaving { .. } | Phase::Resting(_) => false,
            };
            are_those_before_settled &= child.is_settled();
            if is_due && is_its_turn {
                self.spawn(key);
            }
        }
    }

    /// Nobody behind it is about to stop: its group starts when all of it is gone.
    fn are_those_behind_still(&self, key: Key) -> bool {
        self.children.range(behind(key)..).all(|(_, child)| child.marked.is_none() && !child.is_leaving())
    }
}

/// Of two fates of a marked child: to be forgotten is stronger, and of two restarts the later one holds.
fn later(before: Option<Fate>, fate: Fate) -> Fate {
    match (before, fate) {
        (Some(Fate::Restart { due: before }), Fate::Restart { due }) => {
            Fate::Restart { due: due.max(before) }
        }
        (Some(Fate::Forget), _) => Fate::Forget,
        (_, fate) => fate,
    }
}
