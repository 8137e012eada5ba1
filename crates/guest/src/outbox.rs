//! What the guest has to say and the host has not taken yet.
//!
//! State: encoded frames. They are lost in a crash, with the stream they were meant for.

use std::os::fd::AsFd;

use rustix::io::Errno;
use serde::Serialize;

use conjure_guest::protocol::{FrameError, FrameKind, GuestError, StreamId, encode_data_into, encode_into};

/// Content is not taken from jobs while more than this waits for the host.
const CONTENT_MARK: usize = 1024 * 1024;

/// Nothing is taken from the host while more than this waits for it: a host that sends requests and reads no
/// replies.
const CONTROL_MARK: usize = 16 * 1024 * 1024;

/// Frames for the host, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    buffer: Vec<u8>,
    start: usize,
}

impl Outbox {
    /// Whether much waits, or did a moment ago.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.capacity() > CONTENT_MARK
    }

    /// Queues a frame whose payload is `value` as JSON.
    pub(crate) fn json(&mut self, kind: FrameKind, channel: u32, value: &impl Serialize) {
        match serde_json::to_vec(value) {
            Ok(payload) => self.frame(kind, channel, &payload),
            Err(error) => {
                let message = format!("the reply cannot be written down: {error}");
                self.done(channel, &crate::error::encode(&Err(crate::error::io(message))));
            }
        }
    }

    /// Queues the last frame of a channel.
    pub(crate) fn done(&mut self, channel: u32, reply: &[u8]) {
        self.frame(FrameKind::Done, channel, reply);
    }

    /// Queues a grant of credit.
    pub(crate) fn credit(&mut self, channel: u32, bytes: u32) {
        self.frame(FrameKind::Credit, channel, &bytes.to_le_bytes());
    }

    /// Queues the first frame of a tunnel, with the credit that the host has to begin with.
    pub(crate) fn tunnel(&mut self, channel: u32, credit: u32) {
        self.frame(FrameKind::Tunnel, channel, &credit.to_le_bytes());
    }

    /// Queues the end of a tunnel's content.
    pub(crate) fn eof(&mut self, channel: u32) {
        self.frame(FrameKind::Eof, channel, &[]);
    }

    /// Queues content, which the host must have granted credit for.
    pub(crate) fn data(&mut self, channel: u32, stream: StreamId, content: &[u8]) {
        let encoded = encode_data_into(&mut self.buffer, channel, stream, content);
        debug_assert!(encoded.is_ok(), "content is cut to the size of a frame: {encoded:?}");
    }

    fn frame(&mut self, kind: FrameKind, channel: u32, payload: &[u8]) {
        if let Err(FrameError::TooLong(length)) = encode_into(&mut self.buffer, kind, channel, payload) {
            let error = GuestError {
                code: conjure_guest::protocol::ErrorCode::TooLarge,
                message: format!("the reply has {length} bytes, which is more than a frame carries"),
            };
            let payload = crate::error::encode(&Err(error));
            let encoded = encode_into(&mut self.buffer, FrameKind::Done, channel, &payload);
            debug_assert!(encoded.is_ok(), "an error is short: {encoded:?}");
        }
    }

    /// Everything that waits, as if it had been written.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.start = 0;
        std::mem::take(&mut self.buffer)
    }

    fn waiting(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Whether there is room for content.
    pub(crate) fn takes_content(&self) -> bool {
        self.waiting() < CONTENT_MARK
    }

    /// Whether there is room for what the host's next frames may bring about.
    pub(crate) fn takes_control(&self) -> bool {
        self.waiting() < CONTROL_MARK
    }

    /// Writes as much as `stream`, which must not block, takes.
    ///
    /// # Errors
    /// When the host is gone.
    pub(crate) fn flush(&mut self, stream: impl AsFd) -> Result<(), Errno> {
        while let Some(rest) = self.buffer.get(self.start..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&stream, rest) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(written) => self.start += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        if self.is_empty() {
            self.start = 0;
            self.buffer.clear();
            self.buffer.shrink_to(CONTENT_MARK);
        } else if self.start >= CONTENT_MARK {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        Ok(())
    }
}
