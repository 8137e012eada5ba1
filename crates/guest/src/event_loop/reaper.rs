//! Reaps children, kills processes that lost their shim, and ends everything at exit.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};

use conjure_guest::protocol::END_TIMEOUT;

use super::EventLoop;
use super::open_job::Job;
use crate::job::{kill, request_stop};
use crate::{clock, process_tree, sys};

/// The interval at which the reaper looks for processes that lost their shim.
const ORPHAN_INTERVAL: Duration = Duration::from_millis(10);

/// How long the reaper keeps killing such processes. The guest cannot kill a process that survives this long.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long children may run after SIGTERM when the guest exits.
const TERM_TIMEOUT: Duration = Duration::from_secs(1);

const _: () = assert!(
    TERM_TIMEOUT.as_millis() < END_TIMEOUT.as_millis(),
    "a guest that its host has killed can kill nothing any more"
);

/// The maximum time that the guest waits at exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

impl EventLoop {
    /// Reaps all children that exited. A child that is neither shim nor worker has lost its shim. The processes below
    /// a killed shim have lost it, too. Children that commands stopped are resumed.
    pub(super) fn reap(&mut self) {
        let mut stopped = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if status.stopped() => stopped.push(pid),
                Ok(Some((pid, status))) => match self.children.remove(&pid) {
                    Some(child) => {
                        self.shims.forget(pid);
                        if status.signaled() {
                            self.start_killing_orphans();
                        }
                        self.record_child_end(child.channel, status);
                        self.with_job(child.channel, |job, cx| match job {
                            Job::Exec(job) => job.reaped(cx),
                            Job::File(job) => job.reaped(status, cx),
                        });
                    }
                    None => self.start_killing_orphans(),
                },
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        // Not in the loop: a child that is stopped again at once would keep the guest here.
        self.resume_children(&stopped);
    }

    fn start_killing_orphans(&mut self) {
        if self.orphan_kill.is_none() {
            let now = clock::now();
            self.orphan_kill = Some((now, now));
        }
    }

    /// Kills processes that became the guest's children, until none is left.
    pub(super) fn kill_orphans(&mut self) {
        let Some((since, next)) = self.orphan_kill else { return };
        let now = clock::now();
        if now < next {
            return;
        }
        process_tree::kill_round(|pid| self.children.contains_key(&pid));
        self.reap();
        // A round may kill nobody although some are left: in a fork storm, all that it saw may have exited meanwhile.
        let is_left = process_tree::has_other_children(|pid| self.children.contains_key(&pid));
        let goes_on = is_left && now < since + ORPHAN_TIMEOUT;
        self.orphan_kill = goes_on.then_some((since, now + ORPHAN_INTERVAL));
        if !goes_on {
            self.advance_jobs();
        }
    }

    /// Ends every child and its descendants, and waits until none is left or the time is up.
    pub(super) fn end_everything(&mut self) {
        self.channels.clear();
        for pid in self.children.keys() {
            request_stop(*pid);
        }
        let start = clock::now();
        let mut is_patient = true;
        loop {
            loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, _))) => drop(self.children.remove(&pid)),
                    Err(Errno::INTR) => {}
                    Ok(None) => break,
                    // There are no children left.
                    Err(_) => return,
                }
            }
            let now = clock::now();
            if is_patient && now >= start + TERM_TIMEOUT {
                is_patient = false;
                for pid in self.children.keys() {
                    kill(*pid);
                }
            }
            if now >= start + SHUTDOWN_TIMEOUT {
                return;
            }
            process_tree::kill_round(|pid| self.children.contains_key(&pid));
            sys::wait_for_signal(&[Signal::CHILD], Some(ORPHAN_INTERVAL));
        }
    }
}
