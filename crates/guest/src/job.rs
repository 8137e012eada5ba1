//! What all operations have in common: a forked process, pipes to it, credit, and a way to end it early.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};

use conjure_guest::protocol::{DATA_MAX, GuestError, OVER_WITHIN, QuotaExcess, StreamId};

use crate::error;
use crate::exec::SpillFolder;
use crate::fortress::Pressure;
use crate::outbox::Outbox;

/// How long a process that was told to end may take before it is killed; after as long again, the operation is
/// over whether it is gone or not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

const _: () = assert!(
    2 * PATIENCE.as_millis() <= OVER_WITHIN.as_millis(),
    "a host that waits as the protocol says would kill a sound guest"
);

/// When to look again at a process that was told to end at `since`.
pub(crate) fn next_patience(since: Duration, now: Duration) -> Duration {
    if now < since + PATIENCE { since + PATIENCE } else { since + 2 * PATIENCE }
}

/// Bytes that are read at once.
pub(crate) const SCRATCH: usize = 128 * 1024;

/// Why an operation is ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Its time is up.
    TimedOut,
    /// The host does not want it any more.
    Cancelled,
    /// The process that answers for it is gone.
    Lost,
    /// The folder with a quota takes too much.
    OverQuota(QuotaExcess),
}

/// Which descriptor of a job is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Content from the host can be written.
    Feed,
    /// The job's process tells how it went.
    Report,
    /// A stream of output has bytes, or ended.
    Output(StreamId),
}

/// What a job works with besides itself.
#[derive(Debug)]
pub(crate) struct Cx<'a> {
    pub(crate) channel: u32,
    pub(crate) now: Duration,
    /// What the host has room for.
    pub(crate) credit: &'a mut u64,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) scratch: &'a mut [u8],
    pub(crate) spill: Option<&'a mut SpillFolder>,
    pub(crate) pressure: &'a mut Pressure,
    /// Whether processes that lost their shim are being killed.
    pub(crate) is_sweeping: bool,
}

impl Cx<'_> {
    /// How many bytes of content may be sent now, at most one frame's.
    pub(crate) fn room(&self) -> usize {
        if self.outbox.takes_content() {
            usize::try_from(*self.credit).unwrap_or(usize::MAX).min(DATA_MAX)
        } else {
            0
        }
    }

    /// Sends content of at most [`Cx::room`] bytes.
    pub(crate) fn send(&mut self, stream: StreamId, content: &[u8]) {
        *self.credit = self.credit.saturating_sub(content.len() as u64);
        self.outbox.data(self.channel, stream, content);
    }
}

/// What a job waits for.
pub(crate) type Interest<'a> = (Port, BorrowedFd<'a>, PollFlags);

/// What came out of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    /// So many bytes; not none.
    Bytes(usize),
    /// None so far.
    Nothing,
    /// The other side was closed.
    End,
}

/// Reads from a pipe that does not block.
pub(crate) fn read(pipe: impl AsFd, buffer: &mut [u8]) -> Got {
    loop {
        match rustix::io::read(&pipe, &mut *buffer) {
            Ok(0) => return Got::End,
            Ok(length) => return Got::Bytes(length),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Got::Nothing,
            Err(_) => return Got::End,
        }
    }
}

/// A pipe of which the guest reads one end, without ever blocking, and a child writes the other.
pub(crate) fn pipe_from_child() -> Result<(OwnedFd, OwnedFd), GuestError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(exhausted)?;
    rustix::io::ioctl_fionbio(&reader, true).map_err(exhausted)?;
    Ok((reader, writer))
}

/// A pipe of which a child reads one end, and the guest writes the other without ever blocking.
pub(crate) fn pipe_to_child() -> Result<(OwnedFd, OwnedFd), GuestError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(exhausted)?;
    rustix::io::ioctl_fionbio(&writer, true).map_err(exhausted)?;
    Ok((reader, writer))
}

/// Why there is no process or pipe.
pub(crate) fn exhausted(errno: Errno) -> GuestError {
    let message =
        format!("cannot start the operation: no more processes, memory or files can be had ({errno})");
    error::error(conjure_guest::protocol::ErrorCode::Exhausted, message)
}

/// Tells a shim or worker, a child that was not reaped yet, to end itself and all below it; also when a
/// command stopped it.
pub(crate) fn tell_to_end(pid: Pid) {
    // It cannot be gone, not being reaped; and there is no other way to fail.
    let _ = rustix::process::kill_process(pid, Signal::TERM);
    let _ = rustix::process::kill_process(pid, Signal::CONT);
}

/// Kills a shim or worker that did not end itself.
pub(crate) fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// Why one more operation is refused.
pub(crate) fn too_many(open: usize) -> GuestError {
    let message =
        format!("{open} operations are under way, which is the most at a time; wait for one to end");
    error::error(conjure_guest::protocol::ErrorCode::Exhausted, message)
}
