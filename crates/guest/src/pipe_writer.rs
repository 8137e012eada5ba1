//! Writes content from the host into a pipe: a program's standard input, or the new content of a file.
//!
//! State: at most [`WINDOW`] bytes, for which the host has credit. A pipe without an active reader delays only its
//! own channel. When the reader has closed the pipe, further content is dropped.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::error::CreditError;
use crate::frame_queue::FrameQueue;

/// The maximum number of bytes that wait for the pipe.
const WINDOW: usize = 256 * 1024;

/// How content is written to the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeFraming {
    /// Unchanged. The end of the pipe is the end of the content.
    Raw,
    /// In chunks, each after its length (`u32`, little endian). A length of 0 marks the end, so the reader can
    /// tell complete content from truncated content.
    Chunked,
}

/// Writes content into a pipe, within the credit that it grants to the host.
#[derive(Debug)]
pub(crate) struct PipeWriter {
    /// `None` once all content is written, or the reader has closed the pipe.
    pipe: Option<OwnedFd>,
    framing: PipeFraming,
    buffer: VecDeque<u8>,
    /// How many bytes the host may still send.
    granted: usize,
    is_ended: bool,
}

impl PipeWriter {
    /// Creates a writer for `pipe`, which must be non-blocking, and grants the host its first credit.
    pub(crate) fn new(pipe: OwnedFd, framing: PipeFraming, channel: u32, frames: &mut FrameQueue) -> Self {
        let mut writer =
            Self { pipe: Some(pipe), framing, buffer: VecDeque::new(), granted: 0, is_ended: false };
        writer.grant(channel, frames);
        writer
    }

    /// The pipe, when content waits for it.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.buffer.is_empty()).map(AsFd::as_fd)
    }

    /// Accepts content from the host.
    pub(crate) fn push(
        &mut self,
        content: &[u8],
        channel: u32,
        frames: &mut FrameQueue,
    ) -> Result<(), CreditError> {
        if self.is_ended {
            return Err(CreditError::AfterEnd);
        }
        self.granted = self.granted.checked_sub(content.len()).ok_or(CreditError::BeyondCredit)?;
        if self.pipe.is_some() && !content.is_empty() {
            if self.framing == PipeFraming::Chunked {
                let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
                self.buffer.extend(length.to_le_bytes());
            }
            self.buffer.extend(content);
        }
        self.write(channel, frames);
        Ok(())
    }

    /// Marks the end of the content.
    pub(crate) fn end(&mut self, channel: u32, frames: &mut FrameQueue) {
        if !self.is_ended && self.framing == PipeFraming::Chunked && self.pipe.is_some() {
            self.buffer.extend(0_u32.to_le_bytes());
        }
        self.is_ended = true;
        self.write(channel, frames);
    }

    /// Writes as much as the pipe accepts.
    pub(crate) fn write(&mut self, channel: u32, frames: &mut FrameQueue) {
        while let Some(pipe) = &self.pipe {
            let (next, _) = self.buffer.as_slices();
            if next.is_empty() {
                break;
            }
            match rustix::io::write(pipe, next) {
                Ok(written) => drop(self.buffer.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The reader has closed the pipe: drop the content, and do not hold up the host.
                Err(_) => {
                    self.pipe = None;
                    self.buffer = VecDeque::new();
                }
            }
        }
        if self.buffer.is_empty() && self.is_ended {
            self.pipe = None;
        }
        self.grant(channel, frames);
    }

    fn grant(&mut self, channel: u32, frames: &mut FrameQueue) {
        let room = WINDOW.saturating_sub(self.granted + self.buffer.len());
        if !self.is_ended && room >= WINDOW / 4 {
            self.granted += room;
            frames.credit(channel, u32::try_from(room).unwrap_or(u32::MAX));
        }
    }
}
