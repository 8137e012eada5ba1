//! The guest as a parent: reaping, killing what lost its shim, and ending everything.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};

use conjure_guest::protocol::OVER_WITHIN;

use super::{Guest, Job};
use crate::job::{kill, tell_to_end};
use crate::{clock, sys, tree};

/// How often processes that lost their shim are looked for while there are some.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// How long that goes on: what cannot be killed by then is not ours to kill.
const SWEEP_MAX: Duration = Duration::from_secs(5);

/// How long children may take to end themselves when the guest ends, before they are killed.
const END_PATIENCE: Duration = Duration::from_secs(1);

const _: () = assert!(
    END_PATIENCE.as_millis() < OVER_WITHIN.as_millis(),
    "a guest that its host has killed can kill nothing any more"
);

/// How long the guest waits for its end at all.
const END_MAX: Duration = Duration::from_secs(10);

impl Guest {
    /// Takes the exit states of children. One that is nobody's shim or worker lost its shim, as do those
    /// below a shim that was killed. Children that commands have stopped go on.
    pub(super) fn reap(&mut self) {
        let mut stopped = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if status.stopped() => stopped.push(pid),
                Ok(Some((pid, status))) => match self.children.remove(&pid) {
                    Some(child) => {
                        self.shims.reaped(pid);
                        if status.signaled() {
                            self.start_sweep();
                        }
                        self.weigh_end(child.channel, status);
                        self.with_job(child.channel, |job, cx| match job {
                            Job::Exec(job) => job.reaped(cx),
                            Job::File(job) => job.reaped(status, cx),
                        });
                    }
                    None => self.start_sweep(),
                },
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        // Not before: one that is stopped again at once would keep the guest here.
        self.resume_children(&stopped);
    }

    fn start_sweep(&mut self) {
        if self.sweep.is_none() {
            let now = clock::now();
            self.sweep = Some((now, now));
        }
    }

    /// Kills processes that fell to the guest, until there are none.
    pub(super) fn sweep(&mut self) {
        let Some((since, next)) = self.sweep else { return };
        let now = clock::now();
        if now < next {
            return;
        }
        let found = tree::kill_round(|pid| self.children.contains_key(&pid));
        self.reap();
        let goes_on = found > 0 && now < since + SWEEP_MAX;
        self.sweep = goes_on.then_some((since, now + SWEEP_PAUSE));
        if !goes_on {
            self.look_at_jobs();
        }
    }

    /// Ends every child and all below, and waits until none is left, for a while.
    pub(super) fn end_everything(&mut self) {
        self.channels.clear();
        for pid in self.children.keys() {
            tell_to_end(*pid);
        }
        let start = clock::now();
        let mut is_patient = true;
        loop {
            loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, _))) => drop(self.children.remove(&pid)),
                    Err(Errno::INTR) => {}
                    Ok(None) => break,
                    // No children are left.
                    Err(_) => return,
                }
            }
            let now = clock::now();
            if is_patient && now >= start + END_PATIENCE {
                is_patient = false;
                for pid in self.children.keys() {
                    kill(*pid);
                }
            }
            if now >= start + END_MAX {
                return;
            }
            tree::kill_round(|pid| self.children.contains_key(&pid));
            sys::wait_for_signal(&[Signal::CHILD], Some(SWEEP_PAUSE));
        }
    }
}
