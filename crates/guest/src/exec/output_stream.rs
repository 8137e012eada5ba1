//! One output stream of a program: captured, or streamed to the host.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conjure_guest::protocol::{CapturedOutput, DATA_MAX, OutputMode, StreamId};

use super::capture::Capture;
use super::spill::SpillDir;
use crate::job::{JobContext, ReadOutcome, read};

/// How often one stream is read before others get their turn.
const READS: usize = 8;

/// Standard output or standard error of a program.
#[derive(Debug)]
pub(super) struct OutputStream {
    stream: StreamId,
    /// `None` after its end, and for standard error that is merged into standard output.
    pipe: Option<OwnedFd>,
    /// `None` when the output is streamed.
    capture: Option<Capture>,
    total: u64,
    sent_head: u64,
    sent_tail: u64,
    /// After the program's exit: how many bytes it had written that were not read yet.
    pending: u64,
    /// How many bytes of this pipe may be read before the other stream is checked again. See [`read_output`].
    turn: u64,
}

/// Reads from a stream, and returns whether it read anything. Streamed standard error waits for the bytes that were
/// in standard output's pipe before it. So when a reader learns from standard error that something has ended, it
/// already has the output from before.
pub(super) fn read_output(
    outputs: &mut [OutputStream; 2],
    stream: StreamId,
    cx: &mut JobContext<'_>,
) -> bool {
    let [stdout, stderr] = outputs;
    if stream != StreamId::Stderr {
        return stdout.read(u64::MAX, cx);
    }
    if stderr.capture.is_some() {
        return stderr.read(u64::MAX, cx);
    }
    if stderr.turn == 0 {
        // The order matters: standard error is measured first, so everything that was written to standard output
        // before these bytes is in its pipe now.
        stderr.turn = stderr.in_pipe();
        stdout.turn = stdout.in_pipe();
    }
    let mut moved = stdout.turn > 0 && stdout.read(stdout.turn, cx);
    if stdout.turn == 0 || stdout.is_closed() {
        // With nothing to read, the stream may have ended, so at least one byte is tried.
        moved |= stderr.read(stderr.turn.max(1), cx);
    }
    moved
}

impl OutputStream {
    pub(super) fn new(stream: StreamId, pipe: Option<OwnedFd>, mode: OutputMode) -> Self {
        let capture = match mode {
            OutputMode::Stream => None,
            OutputMode::Capture(limits) => Some(Capture::new(limits)),
        };
        Self { stream, pipe, capture, total: 0, sent_head: 0, sent_tail: 0, pending: 0, turn: 0 }
    }

    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    /// The pipe, if it should be read. `room` is how many bytes the host accepts.
    pub(super) fn wants_to_read(&self, room: usize) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| self.capture.is_some() || room > 0).map(AsFd::as_fd)
    }

    /// Reads available bytes, at most this many, and returns whether there were any.
    pub(super) fn read(&mut self, mut limit: u64, cx: &mut JobContext<'_>) -> bool {
        let mut moved = false;
        for _ in 0..READS {
            let Some(pipe) = &self.pipe else { break };
            let room = if self.capture.is_some() { cx.scratch.len() } else { cx.room() };
            let room = room.min(usize::try_from(limit).unwrap_or(usize::MAX));
            let Some(buffer) = cx.scratch.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { break };
            let length = match read(pipe, buffer) {
                ReadOutcome::Bytes(length) => length,
                ReadOutcome::Nothing => break,
                ReadOutcome::End => {
                    self.pipe = None;
                    break;
                }
            };
            moved = true;
            limit -= length as u64;
            self.count(length);
            if let Some(capture) = &mut self.capture {
                capture.push(buffer.get(..length).unwrap_or_default(), cx.spill.as_deref_mut());
                // A short read: the pipe is empty.
                if length < room {
                    break;
                }
            } else {
                *cx.credit = cx.credit.saturating_sub(length as u64);
                cx.frames.data(cx.channel, self.stream, buffer.get(..length).unwrap_or_default());
            }
        }
        moved
    }

    fn count(&mut self, length: usize) {
        self.total += length as u64;
        self.pending = self.pending.saturating_sub(length as u64);
        self.turn = self.turn.saturating_sub(length as u64);
    }

    /// Records the program's exit: the bytes in the pipe now are still its own.
    pub(super) fn mark_end(&mut self) {
        self.pending = self.in_pipe();
    }

    fn in_pipe(&self) -> u64 {
        self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Whether all bytes that the program wrote before its exit were read.
    pub(super) fn is_after_exit(&self) -> bool {
        self.pending == 0
    }

    /// Whether bytes in the pipe wait for credit from the host.
    pub(super) fn is_blocked(&self) -> bool {
        self.in_pipe() > 0
    }

    /// Counts and drops the bytes in the pipe.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) {
        let mut left = self.in_pipe();
        while let Some(pipe) = self.pipe.as_ref().filter(|_| left > 0) {
            let ReadOutcome::Bytes(length) = read(pipe, scratch) else { break };
            self.count(length);
            left = left.saturating_sub(length as u64);
        }
    }

    /// Sends captured output within the host's credit. Returns whether everything was sent.
    pub(super) fn deliver(&mut self, cx: &mut JobContext<'_>) -> bool {
        let Some(capture) = &mut self.capture else { return true };
        while let Some(rest) = capture.head.get(offset(self.sent_head)..).filter(|rest| !rest.is_empty()) {
            let Some(piece) = rest.get(..rest.len().min(cx.room())).filter(|piece| !piece.is_empty()) else {
                return false;
            };
            cx.send(self.stream, piece);
            self.sent_head += piece.len() as u64;
        }
        let tail = tail_slice(&mut capture.tail);
        while let Some(rest) = tail.get(offset(self.sent_tail)..).filter(|rest| !rest.is_empty()) {
            let Some(piece) = rest.get(..rest.len().min(cx.room())).filter(|piece| !piece.is_empty()) else {
                return false;
            };
            debug_assert!(piece.len() <= DATA_MAX, "room is at most one frame");
            cx.send(self.stream, piece);
            self.sent_tail += piece.len() as u64;
        }
        true
    }

    pub(super) fn result(&self, dir: Option<&SpillDir>) -> CapturedOutput {
        let Some(capture) = &self.capture else {
            return CapturedOutput { total: self.total, ..CapturedOutput::default() };
        };
        CapturedOutput { head: self.sent_head, tail: self.sent_tail, ..capture.result(self.total, dir) }
    }

    /// Returns the pipe, if another process still holds its other end.
    pub(super) fn into_pipe(self) -> Option<OwnedFd> {
        self.pipe
    }
}

fn offset(sent: u64) -> usize {
    usize::try_from(sent).unwrap_or(usize::MAX)
}

fn tail_slice(tail: &mut VecDeque<u8>) -> &[u8] {
    tail.make_contiguous()
}
