//! The queue of frames for the host.
//!
//! State: encoded frames. A crash loses them, together with the stream.

use std::os::fd::AsFd;

use rustix::io::Errno;
use serde::Serialize;

use conjure_guest::protocol::{FrameError, FrameKind, GuestError, StreamId, encode_data_into, encode_into};

/// The event loop reads no content from jobs while the queue is longer than this many bytes.
const DATA_LIMIT: usize = 1024 * 1024;

/// The event loop reads no frames from the host while the queue is longer than this many bytes. It happens when a
/// host sends requests and reads no replies.
const CONTROL_LIMIT: usize = 16 * 1024 * 1024;

/// Encoded frames for the host, in order.
#[derive(Debug, Default)]
pub(crate) struct FrameQueue {
    buffer: Vec<u8>,
    start: usize,
}

impl FrameQueue {
    /// Whether the queue holds, or recently held, many bytes.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.capacity() > DATA_LIMIT
    }

    /// Queues a frame whose payload is `value` as JSON.
    pub(crate) fn json(&mut self, kind: FrameKind, channel: u32, value: &impl Serialize) {
        match serde_json::to_vec(value) {
            Ok(payload) => self.frame(kind, channel, &payload),
            Err(error) => {
                let message = format!("the reply cannot be encoded: {error}");
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

    /// Queues the first frame of a tunnel, with the host's initial credit.
    pub(crate) fn tunnel(&mut self, channel: u32, credit: u32) {
        self.frame(FrameKind::Tunnel, channel, &credit.to_le_bytes());
    }

    /// Queues the end of a tunnel's content.
    pub(crate) fn eof(&mut self, channel: u32) {
        self.frame(FrameKind::Eof, channel, &[]);
    }

    /// Queues content. The host must have granted credit for it.
    pub(crate) fn data(&mut self, channel: u32, stream: StreamId, content: &[u8]) {
        let encoded = encode_data_into(&mut self.buffer, channel, stream, content);
        debug_assert!(encoded.is_ok(), "content is cut to the size of a frame: {encoded:?}");
    }

    fn frame(&mut self, kind: FrameKind, channel: u32, payload: &[u8]) {
        if let Err(FrameError::TooLong(length)) = encode_into(&mut self.buffer, kind, channel, payload) {
            let error = GuestError {
                code: conjure_guest::protocol::ErrorCode::TooLarge,
                message: format!("the reply has {length} bytes, which is more than a frame can hold"),
            };
            let payload = crate::error::encode(&Err(error));
            let encoded = encode_into(&mut self.buffer, FrameKind::Done, channel, &payload);
            debug_assert!(encoded.is_ok(), "an error is short: {encoded:?}");
        }
    }

    /// Takes all queued bytes, as if they had been written.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.start = 0;
        std::mem::take(&mut self.buffer)
    }

    fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the queue accepts more content.
    pub(crate) fn has_room_for_data(&self) -> bool {
        self.len() < DATA_LIMIT
    }

    /// Whether the queue accepts the replies to further frames from the host.
    pub(crate) fn has_room_for_control(&self) -> bool {
        self.len() < CONTROL_LIMIT
    }

    /// Writes as much as `stream` accepts. The stream must be non-blocking.
    ///
    /// # Errors
    /// When the host has closed the stream.
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
            self.buffer.shrink_to(DATA_LIMIT);
        } else if self.start >= DATA_LIMIT {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        Ok(())
    }
}
