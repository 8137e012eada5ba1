//! What all operations share: the pipes to a forked process, credit, and early termination.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};

use conjure_guest::protocol::{DATA_MAX, END_TIMEOUT, GuestError, QuotaExcess, StreamId};

use crate::confinement::CgroupEvents;
use crate::error;
use crate::exec::SpillDir;
use crate::frame_queue::FrameQueue;

/// How long a process may run after SIGTERM before it is killed. After the same time again, the operation ends
/// even if the process still exists.
pub(crate) const KILL_RETRY_DELAY: Duration = Duration::from_secs(1);

const _: () = assert!(
    2 * KILL_RETRY_DELAY.as_millis() <= END_TIMEOUT.as_millis(),
    "a host that waits as the protocol says would kill a sound guest"
);

/// When to check a process again that got SIGTERM at `since`.
pub(crate) fn next_kill_delay(since: Duration, now: Duration) -> Duration {
    if now < since + KILL_RETRY_DELAY { since + KILL_RETRY_DELAY } else { since + 2 * KILL_RETRY_DELAY }
}

/// The size of the read buffer.
pub(crate) const SCRATCH_LEN: usize = 128 * 1024;

/// Why an operation ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbortReason {
    /// Its timeout has passed.
    TimedOut,
    /// The host cancelled it.
    Cancelled,
    /// Its shim was killed.
    Lost,
    /// The directory exceeds its quota.
    OverQuota(QuotaExcess),
}

/// A file descriptor of a job that can be ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobFd {
    /// The pipe for content from the host accepts bytes.
    Input,
    /// The job's process sent its report.
    Report,
    /// An output stream has bytes, or has ended.
    Output(StreamId),
}

/// The parts of the event loop that a job uses.
#[derive(Debug)]
pub(crate) struct JobContext<'a> {
    pub(crate) channel: u32,
    pub(crate) now: Duration,
    /// How many bytes of content the host accepts.
    pub(crate) credit: &'a mut u64,
    pub(crate) frames: &'a mut FrameQueue,
    pub(crate) scratch: &'a mut [u8],
    pub(crate) spill: Option<&'a mut SpillDir>,
    pub(crate) cgroup_events: &'a mut CgroupEvents,
    /// Whether the reaper is killing processes that lost their shim.
    pub(crate) is_killing_orphans: bool,
}

impl JobContext<'_> {
    /// How many bytes of content may be sent now: at most those of one frame.
    pub(crate) fn room(&self) -> usize {
        if self.frames.has_room_for_data() {
            usize::try_from(*self.credit).unwrap_or(usize::MAX).min(DATA_MAX)
        } else {
            0
        }
    }

    /// Sends content of at most [`JobContext::room`] bytes.
    pub(crate) fn send(&mut self, stream: StreamId, content: &[u8]) {
        *self.credit = self.credit.saturating_sub(content.len() as u64);
        self.frames.data(self.channel, stream, content);
    }
}

/// A descriptor of a job, and the events to poll it for.
pub(crate) type PollInterest<'a> = (JobFd, BorrowedFd<'a>, PollFlags);

/// The result of reading from a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// This many bytes, at least one.
    Bytes(usize),
    /// No bytes are available now.
    Nothing,
    /// The other side is closed.
    End,
}

/// Reads from a non-blocking pipe.
pub(crate) fn read(pipe: impl AsFd, buffer: &mut [u8]) -> ReadOutcome {
    loop {
        match rustix::io::read(&pipe, &mut *buffer) {
            Ok(0) => return ReadOutcome::End,
            Ok(length) => return ReadOutcome::Bytes(length),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return ReadOutcome::Nothing,
            Err(_) => return ReadOutcome::End,
        }
    }
}

/// Creates a pipe from a child. The guest's end is non-blocking.
pub(crate) fn pipe_from_child() -> Result<(OwnedFd, OwnedFd), GuestError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(exhausted)?;
    rustix::io::ioctl_fionbio(&reader, true).map_err(exhausted)?;
    Ok((reader, writer))
}

/// Creates a pipe to a child. The guest's end is non-blocking.
pub(crate) fn pipe_to_child() -> Result<(OwnedFd, OwnedFd), GuestError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(exhausted)?;
    rustix::io::ioctl_fionbio(&writer, true).map_err(exhausted)?;
    Ok((reader, writer))
}

/// The error when no process or pipe can be created.
pub(crate) fn exhausted(errno: Errno) -> GuestError {
    let message =
        format!("cannot start the operation: the system is out of processes, memory or files ({errno})");
    error::error(conjure_guest::protocol::ErrorCode::Exhausted, message)
}

/// Sends SIGTERM to a shim or worker that was not reaped yet. It ends with everything below it. SIGCONT follows,
/// because a command may have stopped it.
pub(crate) fn request_stop(pid: Pid) {
    // The process exists until it is reaped, so these calls cannot fail.
    let _ = rustix::process::kill_process(pid, Signal::TERM);
    let _ = rustix::process::kill_process(pid, Signal::CONT);
}

/// Kills a shim or worker that ignored SIGTERM.
pub(crate) fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// The error when too many operations are open.
pub(crate) fn too_many(open: usize) -> GuestError {
    let message = format!("{open} operations are in progress, which is the maximum; wait for one to end");
    error::error(conjure_guest::protocol::ErrorCode::Exhausted, message)
}
