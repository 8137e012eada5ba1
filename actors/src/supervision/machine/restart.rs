//! The restart decision: it selects what follows when a child has ended by itself.

use std::time::Duration;

use super::child::{AfterExit, Child, FinalState, Phase, StartCause, StopRequested};
use super::restart_limit::RestartCheck;
use super::step::{Machine, SupervisorPhase};
use super::types::{ChildKey, ChildrenKind, Effect, StopCause, Uptime};
use crate::supervision::specs::exit::ExitClass;
use crate::supervision::specs::policy::{AutoShutdown, IntensityScope, OnLimit};

/// The decision after the end of a child.
enum RestartDecision {
    /// This step follows for the child. The other children are not affected.
    ChildOnly(AfterExit),
    /// The child is finished, which may stop the supervisor (automatic shutdown).
    Finished(AfterExit),
    /// The child is restarted, and its group with it.
    Restart { due: Uptime },
    /// The supervisor gives up.
    GiveUp(StopCause),
}

impl Machine {
    /// Decides what follows the end of a running child.
    pub(super) fn decide(&mut self, now: Uptime, key: ChildKey, exit: ExitClass, random: u64) {
        let restart_decision = self.restart_decision(now, key, exit, random);
        self.timers.clear(key);
        let after_exit = match restart_decision {
            RestartDecision::ChildOnly(after_exit) | RestartDecision::Finished(after_exit) => after_exit,
            RestartDecision::Restart { due } => AfterExit::Restart { due },
            RestartDecision::GiveUp(_) => AfterExit::Remove,
        };
        self.enter(key, Phase::Leaving { stop_requested: StopRequested::No, after_exit });
        match restart_decision {
            RestartDecision::ChildOnly(_) => {}
            RestartDecision::Finished(_) => self.check_significant(now, key),
            RestartDecision::Restart { due } => self.plan_group_restart(key, due),
            RestartDecision::GiveUp(cause) => self.begin_stop(now, cause),
        }
    }

    fn restart_decision(
        &mut self,
        now: Uptime,
        key: ChildKey,
        exit: ExitClass,
        random: u64,
    ) -> RestartDecision {
        if self.is_stopping() {
            return RestartDecision::ChildOnly(AfterExit::Remove);
        }
        let Some(child) = self.children.get_mut(&key) else {
            return RestartDecision::ChildOnly(AfterExit::Remove);
        };
        let start_failed = child.up_since.is_none();
        match child.start_cause.filter(|_| start_failed) {
            // A requested or initial start failed. It does not count as a restart, and its callers get the error.
            Some(StartCause::Boot) if self.phase == SupervisorPhase::Starting => {
                return RestartDecision::GiveUp(StopCause::StartFailed(key));
            }
            Some(StartCause::RestartRequest(final_state)) => {
                return RestartDecision::ChildOnly(AfterExit::Finish(final_state));
            }
            Some(StartCause::Boot | StartCause::StartRequest) => {
                return RestartDecision::ChildOnly(AfterExit::Remove);
            }
            None => {}
        }
        // An incarnation that ended during its start counts as a failed start, whatever its exit.
        let exit = if start_failed { ExitClass::StartFailed } else { exit };
        if child.policy.restart.wants(exit) {
            if start_failed {
                child.failed_starts += 1;
            }
            self.try_restart(now, key, random)
        } else {
            RestartDecision::Finished(self.final_state_of(key, exit))
        }
    }

    /// Counts one more restart, and allows it within the limits. Otherwise gives up the child or the supervisor.
    fn try_restart(&mut self, now: Uptime, key: ChildKey, random: u64) -> RestartDecision {
        let Some(child) = self.children.get_mut(&key) else {
            return RestartDecision::ChildOnly(AfterExit::Remove);
        };
        let mut intensity_scope = IntensityScope::Shared;
        if let ChildrenKind::Dynamic { intensity_scope: chosen, quarantine_after, .. } =
            self.policy.children_kind
        {
            if quarantine_after.is_some_and(|limit| child.failed_starts >= limit.get()) {
                return self.give_up(key);
            }
            intensity_scope = chosen;
        }
        let load = match intensity_scope {
            IntensityScope::Shared => self.window.count(now, self.policy.intensity),
            IntensityScope::PerChild => child.window.count(now, self.policy.intensity),
        };
        match (load, intensity_scope) {
            (RestartCheck::Within, _) => {
                RestartDecision::Restart { due: now.after(next_delay(child, now, random)) }
            }
            (RestartCheck::Exceeded, IntensityScope::Shared) => RestartDecision::GiveUp(StopCause::Meltdown),
            (RestartCheck::Exceeded, IntensityScope::PerChild) => self.give_up(key),
        }
    }

    /// Gives up a child that failed too often. Its siblings are not affected.
    fn give_up(&mut self, key: ChildKey) -> RestartDecision {
        match self.policy.children_kind {
            ChildrenKind::Dynamic { on_limit: OnLimit::Remove, .. } => {
                self.effects.push(Effect::GiveUp { key });
                RestartDecision::ChildOnly(AfterExit::Remove)
            }
            ChildrenKind::Dynamic { .. } | ChildrenKind::Ordered { .. } => {
                RestartDecision::ChildOnly(AfterExit::Finish(FinalState::Quarantined))
            }
        }
    }

    /// What follows for a finished child. It is removed if it is temporary or its supervisor is dynamic.
    fn final_state_of(&self, key: ChildKey, exit: ExitClass) -> AfterExit {
        let is_kept = !self.is_dynamic()
            && self.children.get(&key).is_some_and(|child| !child.policy.restart.is_temporary());
        if is_kept { AfterExit::Finish(FinalState::Finished(exit)) } else { AfterExit::Remove }
    }

    fn check_significant(&mut self, now: Uptime, key: ChildKey) {
        let ChildrenKind::Ordered { auto_shutdown, .. } = self.policy.children_kind else { return };
        let is_significant = |child: &Child| child.policy.restart.is_significant();
        if !self.children.get(&key).is_some_and(|child| is_significant(child)) {
            return;
        }
        let others_run = self.children.values().any(|child| {
            let is_done = matches!(
                child.phase,
                Phase::Final(_) | Phase::Leaving { after_exit: AfterExit::Remove | AfterExit::Finish(_), .. }
            );
            is_significant(child) && !is_done
        });
        match auto_shutdown {
            AutoShutdown::AnySignificant => self.begin_stop(now, StopCause::Significant),
            AutoShutdown::AllSignificant if !others_run => self.begin_stop(now, StopCause::Significant),
            AutoShutdown::AllSignificant | AutoShutdown::Never => {}
        }
    }
}

/// Returns the delay before the next restart, and counts one more failure.
fn next_delay(child: &mut Child, now: Uptime, random: u64) -> Duration {
    let backoff = child.policy.backoff;
    if child.up_since.is_some_and(|since| now.since(since) >= backoff.healthy()) {
        child.failures = 0;
    }
    let wait = backoff.delay(child.failures, random);
    child.failures = child.failures.saturating_add(1);
    wait
}
