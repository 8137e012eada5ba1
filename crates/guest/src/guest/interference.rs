//! Commands that stop or kill the guest's own processes, which they can: all have the same user.
//!
//! One such signal costs no more than one call: a shim or worker that was stopped goes on at once, and one that was killed is
//! replaced. A process that goes on sending them would cost every later call. Nobody knows which process it is, so everything
//! that earlier programs left running is ended. If nothing was left, the sender is a program that runs now; where it disturbs
//! other operations, all programs that run are ended as lost.
//!
//! State: how much commands interfered lately. In a crash of the guest all that is below it is killed.

use rustix::process::{Pid, Signal, WaitStatus};

use super::{Guest, Job, NO_OPERATION};
use crate::clock;
use crate::job::{Cut, kill};
use crate::tree::{self, Motion};

/// The weight at which what commands left running is ended.
const LIMIT: u32 = 24;

/// A shim or worker was stopped.
const STOPPED: u32 = 1;

/// A shim or worker was killed, which costs a call.
const KILLED: u32 = 8;

/// A program stood still until its time was up, which costs a call and all of its time.
const STALLED: u32 = 12;

/// A shim or worker did what it was told to.
const ANSWERED: u32 = 2;

/// How much commands interfered with the guest's own processes, less what these achieved since.
#[derive(Debug, Default)]
pub(super) struct Interference {
    weight: u32,
}

impl Interference {
    /// A shim or worker did what it was told to.
    pub(super) fn answered(&mut self) {
        self.weight = self.weight.saturating_sub(ANSWERED);
    }

    /// Whether that is more than is borne. It is forgotten then.
    fn add(&mut self, weight: u32) -> bool {
        self.weight = self.weight.saturating_add(weight);
        let is_too_much = self.weight >= LIMIT;
        if is_too_much {
            self.weight = 0;
        }
        is_too_much
    }
}

impl Guest {
    /// Has children go on that were stopped, which the guest itself never does.
    pub(super) fn resume_children(&mut self, stopped: &[Pid]) {
        for pid in stopped.iter().filter(|pid| self.children.contains_key(pid)) {
            // It cannot be gone, not being reaped.
            let _ = rustix::process::kill_process(*pid, Signal::CONT);
            if self.interference.add(STOPPED) {
                return self.end_senders();
            }
        }
    }

    /// A child has ended. The guest kills only those whose operation is being ended, or over.
    pub(super) fn weigh_end(&mut self, channel: u32, status: WaitStatus) {
        let is_under_way = self.channels.get(&channel).is_some_and(|channel| match &channel.job {
            Job::Exec(job) => job.is_running() || job.is_lost(),
            Job::File(job) => job.has_deadline(),
        });
        if !is_under_way {
            return;
        }
        if !status.signaled() {
            self.interference.answered();
        } else if self.interference.add(KILLED) {
            self.end_senders();
        }
    }

    /// The time of an operation is up.
    pub(super) fn look_for_stalled(&mut self, channel: u32) {
        let shim = self.children.iter().find(|(_, child)| child.channel == channel).map(|(pid, _)| *pid);
        let is_stalled = shim.is_some_and(|shim| {
            tree::descendants_of(shim).into_iter().any(|pid| tree::motion(pid) == Motion::Still)
        });
        if is_stalled && self.interference.add(STALLED) {
            self.end_senders();
        }
    }

    fn end_senders(&mut self) {
        let channels = &self.channels;
        let has_left = |channel: u32| channel != NO_OPERATION && !channels.contains_key(&channel);
        let mut is_ended = false;
        for (pid, _) in self.children.iter().filter(|(_, child)| has_left(child.channel)) {
            // What is below it falls to the guest, which kills it.
            kill(*pid);
            is_ended = true;
        }
        if is_ended || self.channels.len() < 2 {
            return;
        }
        let now = clock::now();
        for channel in self.channels.values_mut() {
            if let Job::Exec(job) = &mut channel.job
                && job.is_running()
            {
                job.cut(Cut::Lost, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_signals_are_borne_and_many_are_not() {
        let mut interference = Interference::default();
        assert_eq!([KILLED, KILLED, KILLED].map(|weight| interference.add(weight)), [false, false, true]);
        assert!(!interference.add(LIMIT - 1), "it begins anew");
        interference.answered();
        assert!(!interference.add(ANSWERED), "what is done since counts");
        assert!(interference.add(STOPPED));
    }
}
