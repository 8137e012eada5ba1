//! The end of a program: how it ended, which limits it hit, and when its output is complete.

use std::time::Duration;

use conjure_guest::protocol::ExecEnd;

use super::job::{DRAIN, DRAIN_MAX, ExecJob, Phase};
use super::output_stream::OutputStream;
use crate::job::{JobContext, KILL_RETRY_DELAY, request_stop};
use crate::process_tree;

impl ExecJob {
    pub(super) fn end_at(&mut self, end: ExecEnd, now: Duration) {
        self.ended.get_or_insert(now);
        self.stdin = None;
        for output in &mut self.outputs {
            output.mark_end();
        }
        self.phase = Phase::Draining { end, since: now, last: now };
    }

    /// Whether the job still waits for leftover processes to end.
    pub(super) fn is_ending_leftovers(&self, now: Duration) -> bool {
        let Phase::Draining { since, .. } = self.phase else { return false };
        self.limits_hit.ended_leftovers && self.shim.is_some() && now < since + KILL_RETRY_DELAY
    }

    /// Whether all output of the program was read. When other processes hold the pipes open, reading stops once
    /// the pipes are quiet for a while. After a longer time it stops in any case.
    pub(super) fn is_drained(&mut self, end: ExecEnd, cx: &mut JobContext<'_>) -> bool {
        let Phase::Draining { since, last, .. } = self.phase else { return true };
        // The leftover processes must end first: the next program needs their process slots.
        if self.is_ending_leftovers(cx.now) {
            return false;
        }
        let is_cancelled = end == ExecEnd::Cancelled;
        if self.outputs.iter().all(OutputStream::is_closed) {
            return true;
        }
        if is_cancelled {
            // The host gets as much output as its credit allows. The rest is dropped.
            for output in &mut self.outputs {
                output.read(u64::MAX, cx);
                output.discard(cx.scratch);
            }
            return true;
        }
        if cx.now >= last + DRAIN {
            // The guest may have been busy. So it reads once more before it decides.
            let mut moved = false;
            for output in &mut self.outputs {
                moved |= output.read(u64::MAX, cx);
            }
            if !moved && !self.outputs.iter().any(OutputStream::is_blocked) {
                return true;
            }
            self.phase = Phase::Draining { end, since, last: cx.now };
        }
        cx.now >= since + DRAIN_MAX && self.outputs.iter().all(OutputStream::is_after_exit)
    }

    pub(super) fn classify(&mut self, status: i32, cx: &mut JobContext<'_>) -> ExecEnd {
        let end = match (status & 0x7f, (status >> 8) & 0xff) {
            (0, code) => ExecEnd::Exited(code),
            (signal, _) => ExecEnd::Signaled(signal),
        };
        // A shell reports a killed child as 128 + 9.
        let is_killed = matches!(end, ExecEnd::Signaled(9) | ExecEnd::Exited(137));
        self.read_event_counts(cx, is_killed);
        if is_killed && self.limits_hit.memory { ExecEnd::OutOfMemory } else { end }
    }

    /// Reads the kernel's counters after the program's end.
    pub(super) fn read_event_counts(&mut self, cx: &mut JobContext<'_>, is_killed: bool) {
        let reached = cx.cgroup_events.delta_since(self.counts_before, is_killed);
        self.limits_hit.memory |= reached.memory;
        self.limits_hit.processes |= reached.processes;
    }

    /// Ends leftover processes when the sandbox is at its process limit.
    pub(super) fn end_leftovers_at_limit(&mut self) {
        self.check_process_limit();
        if self.limits_hit.processes
            && let Some(shim) = self.shim
        {
            request_stop(shim);
            self.limits_hit.ended_leftovers = true;
        }
    }

    /// No counter reports the per-user process limit. So the sandbox counts as being at the limit when it has
    /// nearly as many processes: some exit while others are counted.
    pub(super) fn check_process_limit(&mut self) {
        if let Some(limit) = self.process_limit {
            let enough = limit - limit / 8;
            self.limits_hit.processes |= process_tree::count_tasks(enough) >= enough;
        }
    }
}
