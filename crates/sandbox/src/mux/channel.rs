//! One channel: data to write, received data, and the credit of both directions. Calls and tunnels
//! ([`super::tunnels`]) use the same types.
//!
//! State: in memory. It is lost when the host process dies. The guest then ends, too, because its stream ends.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Buf, Bytes, BytesMut};
use conjure_base::Deadline;
use conjure_guest::protocol::{
    DATA_MAX, FrameKind, GuestError, Reply, StreamId, encode_data_into, encode_into,
};

/// Content shorter than this is appended to the content before it.
const JOIN_BELOW: usize = 4096;

/// How much content of a call may wait to be written, however much credit the guest grants. The guest could grant a
/// terabyte.
const QUEUE: usize = 512 * 1024;

/// The state of one operation. Nothing in it grows beyond the granted credit, in either direction.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// The result, until the call has taken it.
    pub(super) done: Option<Result<Reply, GuestError>>,
    /// The time by which the guest must send `Done`. Otherwise it counts as dead.
    pub(super) deadline: Deadline,
    pub(super) owner: ChannelOwner,
}

/// The receiver of incoming content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelOwner {
    /// A call.
    Call,
    /// None, because the call was dropped. Content until `Done` is discarded.
    Nobody,
}

/// Data that the host must still send.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The payload of `Open`, until it is written.
    pub(super) open: Option<Vec<u8>>,
    /// Credit to announce.
    pub(super) grant: u32,
    /// Content to write. It never exceeds the granted credit or `queue`.
    data: VecDeque<Bytes>,
    /// Its size in bytes.
    queued: usize,
    /// The maximum size of waiting content, however much credit the guest grants.
    queue: usize,
    /// The credit that the guest granted for content.
    credit: u64,
    end: EndState,
    cancel: CancelState,
    /// Whether the channel is in the queue of channels that have a control frame to write.
    pub(super) in_control: bool,
    /// Whether the channel is in the queue of channels that have content to write.
    pub(super) in_data: bool,
    /// The task that waits for credit.
    pub(super) waiter: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndState {
    Open,
    /// `Eof` follows the last content.
    Due,
    Written,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CancelState {
    No,
    Due,
    /// It follows the `Eof`.
    AfterEnd,
    Written,
}

/// Received data that the call has not taken.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Content. It never exceeds the granted credit. Each buffer has one or more runs.
    buffers: VecDeque<BytesMut>,
    /// The streams to which the content belongs, in order: the runs of the first buffer, then those of the next.
    runs: VecDeque<StreamRun>,
    /// How many bytes the guest may still send.
    credit: u64,
    pub(super) waiter: Option<Waker>,
}

/// A run of bytes of one stream in one buffer.
#[derive(Debug)]
struct StreamRun {
    stream: StreamId,
    /// At least 1, at most [`DATA_MAX`].
    length: u32,
}

impl Channel {
    pub(super) fn new(open: Vec<u8>, credit: u32, deadline: Deadline) -> Self {
        Self {
            outgoing: Outgoing::new(Some(open), 0, QUEUE),
            incoming: Incoming { credit: credit.into(), ..Incoming::default() },
            done: None,
            deadline,
            owner: ChannelOwner::Call,
        }
    }
}

impl Outgoing {
    /// Creates a direction with an initial credit of `credit` bytes. At most `queue` bytes wait to be written.
    pub(super) const fn new(open: Option<Vec<u8>>, credit: u32, queue: usize) -> Self {
        Self {
            open,
            grant: 0,
            data: VecDeque::new(),
            queued: 0,
            queue,
            credit: credit as u64,
            end: EndState::Open,
            cancel: CancelState::No,
            in_control: false,
            in_data: false,
            waiter: None,
        }
    }

    /// Whether content may still follow.
    pub(super) fn is_open(&self) -> bool {
        self.end == EndState::Open && self.cancel == CancelState::No
    }

    /// How many bytes of content fit into the credit, the queue and one frame.
    pub(super) fn room(&self) -> usize {
        let credit = usize::try_from(self.credit).unwrap_or(usize::MAX);
        credit.min(self.queue - self.queued).min(DATA_MAX)
    }

    /// Accepts as much of `piece` as fits. Returns whether it accepted anything.
    pub(super) fn accept(&mut self, piece: &mut Bytes) -> bool {
        if !self.is_open() {
            // No more content is accepted after an end, a cancellation or `Done`, so it is dropped.
            piece.clear();
            return true;
        }
        let length = self.room().min(piece.len());
        if length == 0 {
            return piece.is_empty();
        }
        self.credit -= length as u64;
        self.queued += length;
        self.data.push_back(piece.split_to(length));
        true
    }

    /// Adds credit from the guest. Returns `false` if the sum is impossibly large.
    pub(super) fn granted(&mut self, bytes: u32) -> bool {
        self.credit = self.credit.saturating_add(bytes.into());
        self.credit <= 1 << 40
    }

    /// Marks the end of the content.
    pub(super) fn finish(&mut self) {
        if self.is_open() {
            self.end = EndState::Due;
        }
    }

    /// Cancels the operation, and drops content that was not written. Returns `false` if it was cancelled before.
    pub(super) fn cancel(&mut self) -> bool {
        self.drop_data();
        self.end = EndState::Written;
        let news = self.cancel == CancelState::No;
        if news {
            self.cancel = CancelState::Due;
        }
        news
    }

    /// The call was dropped: cancels the operation unless its content was complete. Complete content is still written,
    /// followed by the cancellation.
    pub(super) fn release(&mut self) {
        match (self.end, self.cancel) {
            (EndState::Due, CancelState::No) => self.cancel = CancelState::AfterEnd,
            (EndState::Written, CancelState::No) => self.cancel = CancelState::Due,
            (EndState::Open, _) => {
                self.cancel();
            }
            (_, CancelState::Due | CancelState::AfterEnd | CancelState::Written) => {}
        }
    }

    /// Closes this direction, because `Done` has arrived. Nothing more is written for this channel.
    pub(super) fn close(&mut self) {
        self.drop_data();
        self.grant = 0;
        self.end = EndState::Written;
        self.cancel = CancelState::Written;
    }

    fn drop_data(&mut self) {
        self.data.clear();
        self.queued = 0;
    }

    pub(super) fn has_data(&self) -> bool {
        !self.data.is_empty() || self.end == EndState::Due
    }

    /// Appends the control frames: `Open`, credit, cancellation. Returns `false` if a payload is too long for a
    /// frame. That cannot happen, because it is checked when the channel is opened.
    pub(super) fn write_control(&mut self, id: u32, buffer: &mut Vec<u8>) -> bool {
        let mut fits = true;
        if let Some(payload) = self.open.take() {
            fits &= encode_into(buffer, FrameKind::Open, id, &payload).is_ok();
        }
        let grant = std::mem::take(&mut self.grant);
        if grant > 0 {
            fits &= encode_into(buffer, FrameKind::Credit, id, &grant.to_le_bytes()).is_ok();
        }
        if self.cancel == CancelState::Due {
            self.cancel = CancelState::Written;
            fits &= encode_into(buffer, FrameKind::Cancel, id, &[]).is_ok();
        }
        fits
    }

    /// Appends the next content frame. Appends `Eof` after the last one.
    pub(super) fn write_data(&mut self, id: u32, buffer: &mut Vec<u8>) -> bool {
        let mut fits = true;
        if let Some(piece) = self.data.pop_front() {
            self.queued -= piece.len();
            fits &= encode_data_into(buffer, id, StreamId::Content, &piece).is_ok();
        }
        if self.data.is_empty() && self.end == EndState::Due {
            self.end = EndState::Written;
            fits &= encode_into(buffer, FrameKind::Eof, id, &[]).is_ok();
            if self.cancel == CancelState::AfterEnd {
                self.cancel = CancelState::Written;
                fits &= encode_into(buffer, FrameKind::Cancel, id, &[]).is_ok();
            }
        }
        fits
    }
}

impl Incoming {
    /// Stores the content of a data frame. Small pieces share a buffer, even if they belong to different streams.
    /// Otherwise a guest that sends single bytes would use a hundred times the granted memory.
    pub(super) fn push(&mut self, stream: StreamId, payload: Vec<u8>) {
        let content = payload.get(1..).unwrap_or_default();
        // The content of a frame is at most `DATA_MAX`, so this cannot fail.
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        if length == 0 {
            return;
        }
        if let Some(buffer) = self.buffers.back_mut()
            && content.len() < JOIN_BELOW
            && buffer.len() + content.len() <= DATA_MAX
        {
            buffer.extend_from_slice(content);
            match self.runs.back_mut().filter(|run| run.stream == stream) {
                Some(run) => run.length += length,
                None => self.runs.push_back(StreamRun { stream, length }),
            }
        } else {
            let mut buffer = BytesMut::from(Bytes::from(payload));
            buffer.advance(1);
            self.buffers.push_back(buffer);
            self.runs.push_back(StreamRun { stream, length });
        }
    }

    pub(super) fn pop(&mut self) -> Option<(StreamId, Bytes)> {
        let StreamRun { stream, length } = self.runs.pop_front()?;
        let length = length as usize;
        let buffer = self.buffers.front_mut()?;
        let piece = if length == buffer.len() {
            self.buffers.pop_front()?.freeze()
        } else if length < JOIN_BELOW {
            // A copy, so that a caller who keeps a few bytes does not keep the whole buffer in memory.
            let piece = Bytes::copy_from_slice(&buffer[..length]);
            buffer.advance(length);
            piece
        } else {
            buffer.split_to(length).freeze()
        };
        Some((stream, piece))
    }

    pub(super) fn discard(&mut self) {
        self.buffers = VecDeque::new();
        self.runs = VecDeque::new();
    }

    /// The memory that the content uses, in bytes.
    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        let lists =
            self.runs.capacity() * size_of::<StreamRun>() + self.buffers.capacity() * size_of::<BytesMut>();
        lists + self.buffers.iter().map(BytesMut::capacity).sum::<usize>()
    }

    /// Counts `length` bytes from the guest. Returns `false` if that is more than was granted.
    pub(super) fn spend(&mut self, length: usize) -> bool {
        match self.credit.checked_sub(length as u64) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }

    /// Grants the guest this much more.
    pub(super) fn extend(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }
}
