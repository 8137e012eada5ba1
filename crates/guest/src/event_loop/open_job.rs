//! One open operation of the event loop, and one child process.

use std::os::fd::OwnedFd;
use std::time::Duration;

use conjure_guest::protocol::{GuestError, Reply};

use crate::error;
use crate::exec::{ExecJob, Shim};
use crate::file_job::FileJob;
use crate::job::{AbortReason, JobContext};

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
