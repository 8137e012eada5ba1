//! The open jobs of the event loop, and its child processes.

use std::os::fd::OwnedFd;
use std::time::Duration;

use conjure_guest::protocol::{GuestError, Reply};

use super::EventLoop;
use crate::exec::{ExecJob, Shim};
use crate::file_job::FileJob;
use crate::job::{AbortReason, JobContext};
use crate::{clock, error};

/// The channel of children that belong to no operation. It is the channel of the handshake.
pub(super) const NO_OPERATION: u32 = 0;

/// An open operation.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) job: Job,
    pub(super) credit: u64,
    pub(super) deadline: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum Job {
    /// Boxed because it is much larger.
    Exec(Box<ExecJob>),
    File(FileJob),
}

/// A child process that was not reaped yet.
#[derive(Debug)]
pub(super) struct Child {
    /// The operation that it was forked for, which may have ended. [`NO_OPERATION`] when there is none.
    pub(super) channel: u32,
    /// Output pipes of processes that a program left running. The guest reads and drops their output, so that the
    /// writers do not block.
    pub(super) abandoned_pipes: Vec<OwnedFd>,
}

impl Job {
    pub(super) fn has_deadline(&self) -> bool {
        match self {
            Self::Exec(job) => job.has_deadline(),
            Self::File(job) => job.has_deadline(),
        }
    }

    /// Whether it is a program that lives between calls. Such a job holds no captured output.
    pub(super) fn lives_between_calls(&self) -> bool {
        matches!(self, Self::Exec(job) if job.lives_between_calls())
    }

    /// Takes the shim that this job no longer needs.
    pub(super) fn take_idle_shim(&mut self) -> Option<Shim> {
        match self {
            Self::Exec(job) => job.take_idle_shim(),
            Self::File(_) => None,
        }
    }

    pub(super) fn abort(&mut self, reason: AbortReason, now: Duration) {
        match self {
            Self::Exec(job) => job.abort(reason, now),
            Self::File(job) => job.abort(reason, now),
        }
    }

    /// Continues as far as possible. Returns the payload of the last frame once the job has ended.
    pub(super) fn advance(&mut self, cx: &mut JobContext<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Exec(job) => {
                job.advance(cx).map(|result: Result<Reply, GuestError>| error::encode(&result))
            }
            Self::File(job) => job.advance(cx),
        }
    }
}

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
