//! Runs quota measurements, and ends programs when the quota is exceeded. Does nothing without a quota.

use conjure_guest::protocol::{GuestError, QuotaExcess, Reply};

use super::open_job::{Child, Job, NO_OPERATION};
use super::{EventLoop, GuestConfig};
use crate::clock;
use crate::job::{AbortReason, request_stop};
use crate::pause::{MeasurementPause, ProcessPause};
use crate::quota::{MonitorAction, QuotaMonitor, estimate_usage};

impl EventLoop {
    fn quota_monitor(&mut self) -> Option<&mut QuotaMonitor> {
        self.config.as_mut().and_then(|session| session.quota.as_mut())
    }

    /// Whether any process could write: a running program, or a leftover process that is not paused.
    pub(super) fn is_writing(&self) -> bool {
        self.pause_in_force.is_none() && self.children.values().any(|child| self.is_shim(child))
    }

    fn is_shim(&self, child: &Child) -> bool {
        let job = self.channels.get(&child.channel).map(|channel| &channel.job);
        // A worker outlives its operation only when its disk does not respond.
        child.channel != NO_OPERATION && !matches!(job, Some(Job::File(_)))
    }

    /// Starts a measurement when one is due, and pauses all processes when that is needed.
    pub(super) fn poll_quota(&mut self) {
        let is_busy = self.is_writing();
        let is_paused = self.measurement_pause.is_some();
        match self.quota_monitor().map(|monitor| monitor.poll(clock::now(), is_busy, is_paused)) {
            None | Some(MonitorAction::None) => {}
            Some(MonitorAction::Started(pid)) => {
                self.children.insert(pid, Child { channel: NO_OPERATION, abandoned_pipes: Vec::new() });
            }
            Some(MonitorAction::Measured(excess)) => self.finish_measurement(excess),
            Some(MonitorAction::PauseAll) => self.pause_for_measurement(),
            Some(MonitorAction::Exceeded(excess)) => self.end_for_quota(excess),
        }
    }

    /// Pauses all processes until a measurement ends. The next poll starts the measurement.
    fn pause_for_measurement(&mut self) {
        let children = &self.children;
        match ProcessPause::begin(None, |pid| children.contains_key(&pid)) {
            Ok((pause, _)) => {
                self.measurement_pause = Some(MeasurementPause { pause, has_new_program: false });
                self.poll_quota();
            }
            Err(_) => self.measurement_disturbed(),
        }
    }

    /// Reads the result of a measurement.
    pub(super) fn read_measurement(&mut self) {
        let Some(monitor) = self.quota_monitor() else { return };
        let excess = monitor.read_result(clock::now());
        if monitor.is_measuring() {
            return;
        }
        self.finish_measurement(excess);
    }

    /// Ends a measurement: resumes the paused processes, or ends all programs when the quota is exceeded.
    fn finish_measurement(&mut self, excess: Option<QuotaExcess>) {
        if let Some(excess) = excess {
            self.end_for_quota(excess);
        } else if let Some(MeasurementPause { pause, has_new_program: was_entered }) =
            self.measurement_pause.take()
        {
            let children = &self.children;
            let is_spared = |pid| children.contains_key(&pid);
            // A process that a timer resumed was not measured. A program that the host started since is no attack.
            let is_disturbed = !was_entered && pause.has_running(is_spared);
            pause.end(is_spared);
            if is_disturbed {
                self.measurement_disturbed();
            }
        }
    }

    /// Records that a process did not stay paused.
    fn measurement_disturbed(&mut self) {
        if let Some(excess) =
            self.quota_monitor().and_then(|monitor| monitor.measurement_disturbed(clock::now()))
        {
            self.end_for_quota(excess);
        }
    }

    /// Ends all programs, because the guest cannot know which one wrote too much.
    fn end_for_quota(&mut self, excess: QuotaExcess) {
        let now = clock::now();
        // Paused processes are killed while they are paused.
        self.measurement_pause = None;
        for channel in self.channels.values_mut() {
            if let Job::Exec(job) = &mut channel.job {
                job.abort(AbortReason::OverQuota(excess), now);
            }
        }
        // The code below sends SIGTERM to the idle shim, too.
        self.shims.release();
        // Programs that are being ended get a second SIGTERM, which has no effect.
        for (pid, child) in &self.children {
            if self.is_shim(child) {
                request_stop(*pid);
            }
        }
    }

    /// Counts what a file operation wrote, until the next measurement.
    pub(super) fn record_written(&mut self, channel_id: u32, result: &[u8]) {
        let job = self.channels.get(&channel_id).map(|channel| &channel.job);
        let is_change = matches!(job, Some(Job::File(job)) if job.is_change());
        let Some(GuestConfig { quota: Some(monitor), .. }) = &mut self.config else { return };
        if !is_change {
            return;
        }
        let usage = match serde_json::from_slice::<Result<Reply, GuestError>>(result) {
            // The size of the replaced file is unknown, so this is an upper bound.
            Ok(Ok(Reply::Write { size, dirs, .. })) => Some(estimate_usage(size, dirs)),
            Ok(Ok(Reply::MakeDir { created })) => Some(estimate_usage(0, created)),
            _ => None,
        };
        monitor.change_ended(usage);
    }
}
