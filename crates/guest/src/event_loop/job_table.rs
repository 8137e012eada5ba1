//! Advances the open jobs of the event loop, and removes those that have ended.

use super::EventLoop;
use super::open_job::{Channel, Job, NO_OPERATION};
use crate::clock;
use crate::job::{AbortReason, JobContext};

impl EventLoop {
    /// Calls `work` with a job. `None` when the job does not exist.
    pub(super) fn with_job<T>(
        &mut self,
        channel_id: u32,
        work: impl FnOnce(&mut Job, &mut JobContext<'_>) -> T,
    ) -> Option<T> {
        let channel = self.channels.get_mut(&channel_id)?;
        let mut cx = JobContext {
            channel: channel_id,
            now: clock::now(),
            credit: &mut channel.credit,
            frames: &mut self.frames,
            scratch: &mut self.scratch,
            spill: self.config.as_mut().and_then(|session| session.spill.as_mut()),
            cgroup_events: &mut self.cgroup_events,
            is_killing_orphans: self.orphan_kill.is_some(),
        };
        Some(work(&mut channel.job, &mut cx))
    }

    /// Advances every job, and removes those that ended. Aborts those whose timeout has passed.
    pub(super) fn advance_jobs(&mut self) {
        let numbers: Vec<u32> = self.channels.keys().copied().collect();
        for channel_id in numbers {
            let is_overdue = self.channels.get(&channel_id).is_some_and(|channel| {
                channel.job.has_deadline()
                    && channel.deadline.is_some_and(|deadline| deadline <= clock::now())
            });
            if is_overdue {
                self.check_stalled(channel_id);
            }
            let advanced = self.with_job(channel_id, |job, cx| {
                let mut result = job.advance(cx);
                if result.is_none() && is_overdue {
                    job.abort(AbortReason::TimedOut, cx.now);
                    result = job.advance(cx);
                }
                (result, job.take_idle_shim())
            });
            let Some((result, idle)) = advanced else { continue };
            if let Some(shim) = idle {
                self.interference.answered();
                // The shim belongs to no operation now. It exits when its channel is closed.
                if let Some(child) = self.children.get_mut(&shim.pid()) {
                    child.channel = NO_OPERATION;
                }
                self.shims.keep(shim);
            }
            if let Some(result) = result {
                self.record_written(channel_id, &result);
                self.record_call_end(&result);
                self.frames.done(channel_id, &result);
                self.remove_job(channel_id);
            }
        }
    }

    /// Removes a job that has ended. Processes that it left running may still write output.
    pub(super) fn remove_job(&mut self, channel_id: u32) {
        if let Some(Channel { job: Job::Exec(job), .. }) = self.channels.remove(&channel_id)
            && let Some(child) = self.children.values_mut().find(|child| child.channel == channel_id)
        {
            child.abandoned_pipes = job.into_pipes();
        }
    }
}
