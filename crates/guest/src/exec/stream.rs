//! One stream of a program's output: captured, or passed on while it is written.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conjure_guest::protocol::{Captured, DATA_MAX, OutputMode, StreamId};

use super::capture::Capture;
use super::spill::SpillFolder;
use crate::job::{Cx, Got, read};

/// How often one stream is read before others have their turn.
const READS: usize = 8;

/// A program's standard output or error.
#[derive(Debug)]
pub(super) struct Output {
    stream: StreamId,
    /// `None` at its end, and where it is merged into the other.
    pipe: Option<OwnedFd>,
    /// `None` where it is passed on.
    capture: Option<Capture>,
    total: u64,
    sent_head: u64,
    sent_tail: u64,
    /// After the program's end: what it had written and was not read yet.
    owed: u64,
}

impl Output {
    pub(super) fn new(stream: StreamId, pipe: Option<OwnedFd>, mode: OutputMode) -> Self {
        let capture = match mode {
            OutputMode::Stream => None,
            OutputMode::Capture(limits) => Some(Capture::new(limits)),
        };
        Self { stream, pipe, capture, total: 0, sent_head: 0, sent_tail: 0, owed: 0 }
    }

    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    /// The pipe, if it is to be read when the host has `room`.
    pub(super) fn wants_to_read(&self, room: usize) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| self.capture.is_some() || room > 0).map(AsFd::as_fd)
    }

    /// Reads what is there. Whether anything was.
    pub(super) fn read(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut moved = false;
        for _ in 0..READS {
            let Some(pipe) = &self.pipe else { break };
            let room = if self.capture.is_some() { cx.scratch.len() } else { cx.room() };
            let Some(buffer) = cx.scratch.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { break };
            let length = match read(pipe, buffer) {
                Got::Bytes(length) => length,
                Got::Nothing => break,
                Got::End => {
                    self.pipe = None;
                    break;
                }
            };
            moved = true;
            self.count(length);
            if let Some(capture) = &mut self.capture {
                capture.push(buffer.get(..length).unwrap_or_default(), cx.spill.as_deref_mut());
                // Less than was asked for: the pipe was emptied.
                if length < room {
                    break;
                }
            } else {
                *cx.credit = cx.credit.saturating_sub(length as u64);
                cx.outbox.data(cx.channel, self.stream, buffer.get(..length).unwrap_or_default());
            }
        }
        moved
    }

    fn count(&mut self, length: usize) {
        self.total += length as u64;
        self.owed = self.owed.saturating_sub(length as u64);
    }

    /// The program ended: what is in the pipe now is still its own.
    pub(super) fn mark_end(&mut self) {
        self.owed = self.in_pipe();
    }

    fn in_pipe(&self) -> u64 {
        self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Whether all that the program itself wrote was read.
    pub(super) fn is_past_end(&self) -> bool {
        self.owed == 0
    }

    /// Whether something waits in the pipe for the host to have room.
    pub(super) fn is_held_up(&self) -> bool {
        self.in_pipe() > 0
    }

    /// Counts what is in the pipe and throws it away.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) {
        let mut left = self.in_pipe();
        while let Some(pipe) = self.pipe.as_ref().filter(|_| left > 0) {
            let Got::Bytes(length) = read(pipe, scratch) else { break };
            self.count(length);
            left = left.saturating_sub(length as u64);
        }
    }

    /// Sends what was kept, as far as there is room. Whether all of it was sent.
    pub(super) fn deliver(&mut self, cx: &mut Cx<'_>) -> bool {
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

    pub(super) fn result(&self, folder: Option<&SpillFolder>) -> Captured {
        let Some(capture) = &self.capture else {
            return Captured { total: self.total, ..Captured::default() };
        };
        Captured { head: self.sent_head, tail: self.sent_tail, ..capture.result(self.total, folder) }
    }

    /// The pipe, if something still holds its other end.
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
