//! Stops (SIGSTOP) and resumes (SIGCONT) all descendants.
//!
//! The guest and its shims keep running. So when the host closes its stream, everything ends as usual; SIGKILL also
//! ends stopped processes. Pausing needs no more rights than killing, and no cgroup, so it works wherever a guest
//! runs. To a process, a pause looks like a user's Ctrl-Z and `fg`. A process resumes itself if it has set a timer
//! with SIGCONT: a pause saves resources, and is no security boundary.
//!
//! State: which processes were already stopped before, and must not be resumed. When the guest crashes, the kernel
//! kills everything below it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{Timespec, nanosleep};

use crate::clock;
use crate::process_tree::{self, ProcessState};

/// How long stopping may take. Only processes that keep forking or keep resuming each other take longer. The guest
/// does nothing else meanwhile.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a process may stay in an uninterruptible wait before the pause no longer waits for it.
const UNINTERRUPTIBLE_WAIT: Duration = Duration::from_millis(20);

/// The delay between two passes.
const RETRY_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A pause that is in force.
#[derive(Debug, Default)]
pub(crate) struct ProcessPause {
    /// Processes that were stopped before the pause.
    already_stopped: HashSet<Pid>,
}

/// Why the pause failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseError {
    /// The system does not permit to stop this process.
    Refused(Pid),
    /// New processes kept running until the timeout.
    ForkStorm,
}

/// The pause of all processes during a measurement.
#[derive(Debug)]
pub(crate) struct MeasurementPause {
    pub(crate) pause: ProcessPause,
    /// Whether the host has started a program since the pause began.
    pub(crate) has_new_program: bool,
}

impl ProcessPause {
    /// Stops all descendants except those that `is_excluded` selects, which must be children of this process.
    /// `before` is a pause that is already in force. Also returns the number of processes that are stopped now.
    /// After a failure, all processes run that ran before.
    pub(crate) fn begin(
        before: Option<Self>,
        is_excluded: impl Fn(Pid) -> bool,
    ) -> Result<(Self, u64), PauseError> {
        let is_first = before.is_none();
        let mut pause = before.unwrap_or_default();
        match pause.stop_until_quiet(&is_excluded, is_first) {
            Ok(count) => Ok((pause, count)),
            Err(error) => {
                pause.end(is_excluded);
                Err(error)
            }
        }
    }

    /// Stops processes until none runs. Parents come first, so that no parent sees its child stop.
    ///
    /// A process may fork while the tree is listed, and be stopped before its new child is in a list. So one pass
    /// must find every process stopped, and the next pass must find no new one.
    fn stop_until_quiet(
        &mut self,
        is_excluded: &impl Fn(Pid) -> bool,
        is_first: bool,
    ) -> Result<u64, PauseError> {
        let this_process = rustix::process::getpid();
        let deadline = clock::now() + STOP_TIMEOUT;
        let (mut signalled, mut uninterruptible_since) = (HashSet::new(), HashMap::new());
        let mut all_stopped: Option<HashSet<Pid>> = None;
        loop {
            let processes = process_tree::descendants_parents_first();
            let descendants: HashSet<Pid> = processes.iter().copied().collect();
            let (mut count, mut is_running) = (0, false);
            for pid in processes.into_iter().filter(|pid| !is_excluded(*pid)) {
                match process_tree::process_state(pid) {
                    ProcessState::Exited => continue,
                    ProcessState::Stopped if is_first && !signalled.contains(&pid) => {
                        self.already_stopped.insert(pid);
                    }
                    ProcessState::Stopped => {}
                    // It stops when the kernel releases it, and it may fork before that. A process that waits for
                    // a stopped child is never released.
                    ProcessState::Uninterruptible if signalled.contains(&pid) => {
                        let since = *uninterruptible_since.entry(pid).or_insert_with(clock::now);
                        is_running |= clock::now() < since + UNINTERRUPTIBLE_WAIT;
                    }
                    ProcessState::Uninterruptible | ProcessState::Running => {
                        self.already_stopped.remove(&pid);
                        // The next pass finds the children that it forked just before.
                        is_running = true;
                        match process_tree::signal_member(pid, this_process, &descendants, Signal::STOP) {
                            Ok(true) => drop(signalled.insert(pid)),
                            Ok(false) => continue,
                            Err(_) => return Err(PauseError::Refused(pid)),
                        }
                    }
                }
                count += 1;
            }
            if !is_running {
                if all_stopped.is_some_and(|found| descendants.is_subset(&found)) {
                    return Ok(count);
                }
                all_stopped = Some(descendants);
                continue;
            }
            all_stopped = None;
            if clock::now() >= deadline {
                return Err(PauseError::ForkStorm);
            }
            // All signals are blocked, so nothing interrupts it.
            let _ = nanosleep(&RETRY_DELAY);
        }
    }

    /// Whether any process runs, except the excluded ones.
    pub(crate) fn has_running(&self, is_excluded: impl Fn(Pid) -> bool) -> bool {
        process_tree::descendants_parents_first()
            .into_iter()
            .any(|pid| !is_excluded(pid) && process_tree::process_state(pid) == ProcessState::Running)
    }

    /// Resumes all processes that this pause stopped, and returns how many. Children come first: the kernel sends
    /// SIGHUP to stopped processes whose parent exits.
    pub(crate) fn end(self, is_excluded: impl Fn(Pid) -> bool) -> u64 {
        let this_process = rustix::process::getpid();
        let processes = process_tree::descendants_parents_first();
        let descendants: HashSet<Pid> = processes.iter().copied().collect();
        let stopped = processes
            .into_iter()
            .rev()
            .filter(|pid| !is_excluded(*pid) && !self.already_stopped.contains(pid));
        let resumes = |pid: &Pid| {
            process_tree::signal_member(*pid, this_process, &descendants, Signal::CONT).is_ok_and(|sent| sent)
        };
        stopped.filter(resumes).count() as u64
    }
}
