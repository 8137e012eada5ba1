//! One channel: what is still to be written for it, what came in for it, and the credit of both directions.
//!
//! All of it is lost when the host dies, with the guest: the stream's end ends everything.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Buf, Bytes, BytesMut};
use conjure_base::Deadline;
use conjure_guest::protocol::{DATA_MAX, FrameKind, GuestError, Reply, StreamId, encode_into};

/// Content shorter than this is joined with what came before it.
const JOIN_BELOW: usize = 4096;

/// The most content that waits to be written, whatever the guest grants: it may grant a terabyte.
const QUEUE: usize = 512 * 1024;

/// The state of one operation. Nothing in it grows beyond the credit that was granted, in either direction.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// When the guest must have said `Done`; after it, the guest is taken for dead.
    pub(super) overdue: Deadline,
    pub(super) owner: Owner,
}

/// Who takes what comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A call.
    Call,
    /// Nobody: the call was dropped. What comes in until `Done` is thrown away.
    Nobody,
}

/// What the host has still to say.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The payload of `Open` until it was written.
    pub(super) open: Option<Vec<u8>>,
    /// Credit to announce.
    pub(super) grant: u32,
    /// Content to write; never more than the guest granted, nor than [`QUEUE`].
    data: VecDeque<Bytes>,
    /// Its bytes.
    queued: usize,
    /// What the guest granted beyond `data`.
    credit: u64,
    end: End,
    cancel: Cancel,
    /// Whether the channel stands in the queue of those with a control frame to write.
    pub(super) in_control: bool,
    /// Whether it stands in the queue of those with content to write.
    pub(super) in_data: bool,
    /// Who waits for credit.
    pub(super) waiter: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// `Eof` follows the last content.
    Due,
    Written,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cancel {
    No,
    Due,
    Written,
}

/// What the guest said that the call has not taken.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Content; never more than was granted.
    data: VecDeque<(StreamId, BytesMut)>,
    /// What the guest may still send.
    credit: u64,
    pub(super) done: Option<Result<Reply, GuestError>>,
    pub(super) waiter: Option<Waker>,
}

impl Channel {
    pub(super) fn new(open: Vec<u8>, credit: u32, overdue: Deadline) -> Self {
        Self {
            outgoing: Outgoing {
                open: Some(open),
                grant: 0,
                data: VecDeque::new(),
                queued: 0,
                credit: 0,
                end: End::Open,
                cancel: Cancel::No,
                in_control: false,
                in_data: false,
                waiter: None,
            },
            incoming: Incoming { credit: credit.into(), ..Incoming::default() },
            overdue,
            owner: Owner::Call,
        }
    }
}

impl Outgoing {
    /// Takes as much of `piece` as credit, the queue and one frame allow; whether it took anything.
    pub(super) fn accept(&mut self, piece: &mut Bytes) -> bool {
        if self.end != End::Open || self.cancel != Cancel::No {
            // Nobody listens any more: the content is dropped, and `Done` follows.
            piece.clear();
            return true;
        }
        let credit = usize::try_from(self.credit).unwrap_or(usize::MAX);
        let room = credit.min(QUEUE - self.queued).min(DATA_MAX).min(piece.len());
        if room == 0 {
            return piece.is_empty();
        }
        self.credit -= room as u64;
        self.queued += room;
        self.data.push_back(piece.split_to(room));
        true
    }

    /// The guest grants this much more. `false` when that is beyond all reason.
    pub(super) fn granted(&mut self, bytes: u32) -> bool {
        self.credit = self.credit.saturating_add(bytes.into());
        self.credit <= 1 << 40
    }

    /// No more content follows what was accepted.
    pub(super) fn finish(&mut self) {
        if self.end == End::Open && self.cancel == Cancel::No {
            self.end = End::Due;
        }
    }

    /// The operation is to end; content that was not written is dropped. Whether that is news.
    pub(super) fn cancel(&mut self) -> bool {
        self.drop_data();
        self.end = End::Written;
        let news = self.cancel == Cancel::No;
        if news {
            self.cancel = Cancel::Due;
        }
        news
    }

    /// Nothing more is written for this channel: its `Done` came.
    pub(super) fn close(&mut self) {
        self.drop_data();
        self.grant = 0;
        self.end = End::Written;
        self.cancel = Cancel::Written;
    }

    fn drop_data(&mut self) {
        self.data.clear();
        self.queued = 0;
    }

    pub(super) fn has_data(&self) -> bool {
        !self.data.is_empty() || self.end == End::Due
    }

    /// Appends what must not wait: `Open`, credit, `Cancel`. `false` when a payload is too long for a frame, which
    /// was ruled out when the channel was opened.
    pub(super) fn write_control(&mut self, id: u32, buffer: &mut Vec<u8>) -> bool {
        let mut fits = true;
        if let Some(payload) = self.open.take() {
            fits &= encode_into(buffer, FrameKind::Open, id, &payload).is_ok();
        }
        let grant = std::mem::take(&mut self.grant);
        if grant > 0 {
            fits &= encode_into(buffer, FrameKind::Credit, id, &grant.to_le_bytes()).is_ok();
        }
        if self.cancel == Cancel::Due {
            self.cancel = Cancel::Written;
            fits &= encode_into(buffer, FrameKind::Cancel, id, &[]).is_ok();
        }
        fits
    }

    /// Appends the next content frame, and `Eof` after the last.
    pub(super) fn write_data(&mut self, id: u32, buffer: &mut Vec<u8>) -> bool {
        let mut fits = true;
        if let Some(piece) = self.data.pop_front() {
            self.queued -= piece.len();
            let mut payload = Vec::with_capacity(piece.len() + 1);
            payload.push(StreamId::Content as u8);
            payload.extend_from_slice(&piece);
            fits &= encode_into(buffer, FrameKind::Data, id, &payload).is_ok();
        }
        if self.data.is_empty() && self.end == End::Due {
            self.end = End::Written;
            fits &= encode_into(buffer, FrameKind::Eof, id, &[]).is_ok();
        }
        fits
    }
}

impl Incoming {
    /// Keeps the content of a data frame. Small pieces are joined, so that a guest that sends single bytes does
    /// not cost a hundred times what it was granted.
    pub(super) fn push(&mut self, stream: StreamId, payload: Vec<u8>) {
        let content = payload.get(1..).unwrap_or_default();
        if let Some((last_stream, last)) = self.data.back_mut()
            && *last_stream == stream
            && content.len() < JOIN_BELOW
            && last.len() + content.len() <= DATA_MAX
        {
            last.extend_from_slice(content);
        } else if !content.is_empty() {
            let mut piece = BytesMut::from(Bytes::from(payload));
            piece.advance(1);
            self.data.push_back((stream, piece));
        }
    }

    pub(super) fn pop(&mut self) -> Option<(StreamId, Bytes)> {
        self.data.pop_front().map(|(stream, piece)| (stream, piece.freeze()))
    }

    pub(super) fn discard(&mut self) {
        self.data.clear();
    }

    /// The guest sent `length` bytes; `false` when that is more than it was granted.
    pub(super) fn spend(&mut self, length: usize) -> bool {
        match self.credit.checked_sub(length as u64) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }

    /// Lets the guest send this much more.
    pub(super) fn extend(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }
}
