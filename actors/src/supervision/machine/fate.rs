//! What becomes of a child that ended by itself: the restart decision.

use std::time::Duration;

use super::child::{Asked, Child, Debut, Fate, Phase, Rest};
use super::step::{Course, Machine};
use super::types::{Effect, Key, Moment, Shape, Why};
use super::window::Load;
use crate::supervision::exit::ExitClass;
use crate::supervision::policy::{AutoShutdown, Domain, GivenUp};

/// What follows from the end of one child.
enum Verdict {
    /// This becomes of it, and nothing of the others.
    Alone(Fate),
    /// It is done, which may end the supervisor.
    Done(Fate),
    /// It is started again, and its group with it.
    Again { due: Moment },
    /// The supervisor gives up.
    GiveUp(Why),
}

impl Machine {
    /// Decides about a living child that ended.
    pub(super) fn decide(&mut self, now: Moment, key: Key, exit: ExitClass, roll: u64) {
        let verdict = self.verdict(now, key, exit, roll);
        self.timers.clear(key);
        let fate = match verdict {
            Verdict::Alone(fate) | Verdict::Done(fate) => fate,
            Verdict::Again { due } => Fate::Restart { due },
            Verdict::GiveUp(_) => Fate::Forget,
        };
        self.enter(key, Phase::Leaving { asked: Asked::No, fate });
        match verdict {
            Verdict::Alone(_) => {}
            Verdict::Done(_) => self.mind_significance(now, key),
            Verdict::Again { due } => self.mark_group(key, due),
            Verdict::GiveUp(why) => self.close(now, why),
        }
    }

    fn verdict(&mut self, now: Moment, key: Key, exit: ExitClass, roll: u64) -> Verdict {
        if self.is_stopping() {
            return Verdict::Alone(Fate::Forget);
        }
        let Some(child) = self.children.get_mut(&key) else { return Verdict::Alone(Fate::Forget) };
        let never_up = child.up_since.is_none();
        match child.debut.filter(|_| never_up) {
            // The first start: whoever asked for it is told, and that is not a restart.
            Some(Debut::Boot) if self.course == Course::Starting => {
                return Verdict::GiveUp(Why::StartFailed(key));
            }
            Some(Debut::Again(rest)) => return Verdict::Alone(Fate::Rest(rest)),
            Some(Debut::Boot | Debut::Caller) => return Verdict::Alone(Fate::Forget),
            None => {}
        }
        // Whatever ended it, an incarnation that did not get through its start did not end well.
        let exit = if never_up { ExitClass::StartFailed } else { exit };
        if child.policy.restart.wants(exit) {
            if never_up {
                child.failed_starts += 1;
            }
            self.again(now, key, roll)
        } else {
            Verdict::Done(self.rest_of(key, exit))
        }
    }

    /// One more restart, where that is in order.
    fn again(&mut self, now: Moment, key: Key, roll: u64) -> Verdict {
        let Some(child) = self.children.get_mut(&key) else { return Verdict::Alone(Fate::Forget) };
        let mut domain = Domain::Together;
        if let Shape::Dynamic { domain: chosen, quarantine_after, .. } = self.plan.shape {
            if quarantine_after.is_some_and(|limit| child.failed_starts >= limit.get()) {
                return self.give_up(key);
            }
            domain = chosen;
        }
        let load = match domain {
            Domain::Together => self.window.count(now, self.plan.intensity),
            Domain::EachChild => child.window.count(now, self.plan.intensity),
        };
        match (load, domain) {
            (Load::Bearable, _) => Verdict::Again { due: now.after(next_wait(child, now, roll)) },
            (Load::TooMuch, Domain::Together) => Verdict::GiveUp(Why::Meltdown),
            (Load::TooMuch, Domain::EachChild) => self.give_up(key),
        }
    }

    /// It failed too often, and its siblings go on.
    fn give_up(&mut self, key: Key) -> Verdict {
        match self.plan.shape {
            Shape::Dynamic { given_up: GivenUp::Forgotten, .. } => {
                self.effects.push(Effect::GiveUp { key });
                Verdict::Alone(Fate::Forget)
            }
            Shape::Dynamic { .. } | Shape::Ordered { .. } => Verdict::Alone(Fate::Rest(Rest::Quarantined)),
        }
    }

    /// What is kept of a child that is done: of a temporary one, and where children come and go, nothing.
    fn rest_of(&self, key: Key, exit: ExitClass) -> Fate {
        let is_kept = !self.is_dynamic()
            && self.children.get(&key).is_some_and(|child| !child.policy.restart.is_temporary());
        if is_kept { Fate::Rest(Rest::Finished(exit)) } else { Fate::Forget }
    }

    fn mind_significance(&mut self, now: Moment, key: Key) {
        let Shape::Ordered { auto_shutdown, .. } = self.plan.shape else { return };
        let is_significant = |child: &Child| child.policy.restart.is_significant();
        if !self.children.get(&key).is_some_and(|child| is_significant(child)) {
            return;
        }
        let others_run = self.children.values().any(|child| {
            let is_done = matches!(
                child.phase,
                Phase::Resting(_) | Phase::Leaving { fate: Fate::Forget | Fate::Rest(_), .. }
            );
            is_significant(child) && !is_done
        });
        match auto_shutdown {
            AutoShutdown::AnySignificant => self.close(now, Why::Significant),
            AutoShutdown::AllSignificant if !others_run => self.close(now, Why::Significant),
            AutoShutdown::AllSignificant | AutoShutdown::Never => {}
        }
    }
}

/// How long the child waits, and one failure more.
fn next_wait(child: &mut Child, now: Moment, roll: u64) -> Duration {
    let backoff = child.policy.backoff;
    if child.up_since.is_some_and(|since| now.since(since) >= backoff.healthy()) {
        child.failures = 0;
    }
    let wait = backoff.delay(child.failures, roll);
    child.failures = child.failures.saturating_add(1);
    wait
}
