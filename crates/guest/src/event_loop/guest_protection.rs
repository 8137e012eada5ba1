//! Limits the damage of commands that stop or kill the guest's own processes, or the programs of later calls. They
//! can, because all have the same user.
//!
//! A single signal makes at most one call fail: the guest resumes a stopped shim or worker at once, and replaces a killed
//! one. But a process that keeps sending signals would disturb every later call. The guest cannot find the sender.
//! First it kills the processes that finished calls left running. If there are none, the sender is one of the
//! running programs. When that disturbs other operations, the guest ends all running programs as lost.
//!
//! State: the recent amount of interference. When the guest crashes, the kernel kills everything below it.

use rustix::process::{Pid, Signal, WaitStatus};

use conjure_guest::protocol::{ExecEnd, GuestError, Reply};

use super::EventLoop;
use super::interference_score::{FAILED, KILLED, STALLED, STOPPED};
use super::open_job::{Job, NO_OPERATION};
use crate::clock;
use crate::job::{AbortReason, kill};
use crate::process_tree::{self, ProcessState};

impl EventLoop {
    /// Resumes children that were stopped. The guest itself never stops its children.
    pub(super) fn resume_children(&mut self, stopped: &[Pid]) {
        for pid in stopped.iter().filter(|pid| self.children.contains_key(pid)) {
            // The child was not reaped, so it exists.
            let _ = rustix::process::kill_process(*pid, Signal::CONT);
            if self.interference.add(STOPPED) {
                return self.kill_suspects();
            }
        }
    }

    /// Records that a child exited. The guest kills only children whose operation is being ended, or has ended. So when a
    /// child of another operation was killed, a command did it.
    pub(super) fn record_child_end(&mut self, channel: u32, status: WaitStatus) {
        let is_in_progress = self.channels.get(&channel).is_some_and(|channel| match &channel.job {
            Job::Exec(job) => job.is_running() || job.is_lost(),
            Job::File(job) => job.has_deadline(),
        });
        if !is_in_progress {
            return;
        }
        if !status.signaled() {
            self.interference.answered();
        } else if self.interference.add(KILLED) {
            self.kill_suspects();
        }
    }

    /// Checks whether a program that reached its timeout was stopped.
    pub(super) fn check_stalled(&mut self, channel: u32) {
        let shim = self.children.iter().find(|(_, child)| child.channel == channel).map(|(pid, _)| *pid);
        let is_stalled = shim.is_some_and(|shim| {
            process_tree::descendants_of(shim)
                .into_iter()
                .any(|pid| process_tree::process_state(pid) == ProcessState::Stopped)
        });
        if is_stalled && self.interference.add(STALLED) {
            self.kill_suspects();
        }
    }

    /// Records the result of a call. While processes of earlier calls run, one of them may have ended its program.
    pub(super) fn record_call_end(&mut self, result: &[u8]) {
        if self.leftovers().next().is_none() {
            return;
        }
        let is_failed = match serde_json::from_slice::<Result<Reply, GuestError>>(result) {
            // Faults are the program's own. A shell reports a killed child as 128 and the signal.
            Ok(Ok(Reply::Exec(reply))) => match reply.end {
                ExecEnd::Signaled(signal) => is_sent_by_processes(signal),
                ExecEnd::Exited(code) => code.checked_sub(128).is_some_and(is_sent_by_processes),
                end => matches!(end, ExecEnd::TimedOut),
            },
            _ => false,
        };
        if is_failed && self.interference.add(FAILED) {
            self.kill_suspects();
        }
    }

    /// The shims of processes that finished calls left running.
    fn leftovers(&self) -> impl Iterator<Item = &Pid> {
        let is_leftover = |channel: u32| channel != NO_OPERATION && !self.channels.contains_key(&channel);
        self.children.iter().filter(move |(_, child)| is_leftover(child.channel)).map(|(pid, _)| pid)
    }

    fn kill_suspects(&mut self) {
        let mut is_ended = false;
        for pid in self.leftovers() {
            // Its descendants become the guest's children, and the reaper kills them.
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
                job.abort(AbortReason::Lost, now);
            }
        }
    }
}

/// Whether a signal ends programs and is sent by processes, not by the kernel for a fault.
const fn is_sent_by_processes(signal: i32) -> bool {
    matches!(signal, libc::SIGHUP | libc::SIGINT | libc::SIGKILL | libc::SIGTERM)
}
