//! Content that came from the host and goes into a pipe: a program's standard input, a file's new content.
//!
//! State: at most [`WINDOW`] bytes, for which credit was granted. A pipe that nobody reads holds up only the
//! host's data for it; a pipe that nobody reads any more swallows them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::outbox::Outbox;

/// The most content that waits for the pipe.
const WINDOW: usize = 256 * 1024;

/// How the content is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As it is; its end is the end of the pipe.
    Plain,
    /// Each piece after its length (`u32`, little endian), and a length of 0 at its true end, so that the
    /// reader can tell it from content that was cut off.
    Pieces,
}

/// The host sent what it may not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("more data than credit was granted for")]
    BeyondCredit,
    #[error("data after the end of data")]
    AfterEnd,
}

/// The way of content into a pipe.
#[derive(Debug)]
pub(crate) struct Feed {
    /// `None` once all was written, or nobody reads.
    pipe: Option<OwnedFd>,
    framing: Framing,
    waiting: VecDeque<u8>,
    /// What the host may still send.
    granted: usize,
    is_ended: bool,
}

impl Feed {
    /// A feed into `pipe`, which must not block; grants the host its first credit.
    pub(crate) fn new(pipe: OwnedFd, framing: Framing, channel: u32, outbox: &mut Outbox) -> Self {
        let mut feed =
            Self { pipe: Some(pipe), framing, waiting: VecDeque::new(), granted: 0, is_ended: false };
        feed.grant(channel, outbox);
        feed
    }

    /// The pipe, when something waits for it.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }

    /// Takes content from the host.
    pub(crate) fn push(
        &mut self,
        content: &[u8],
        channel: u32,
        outbox: &mut Outbox,
    ) -> Result<(), FeedError> {
        if self.is_ended {
            return Err(FeedError::AfterEnd);
        }
        self.granted = self.granted.checked_sub(content.len()).ok_or(FeedError::BeyondCredit)?;
        if self.pipe.is_some() && !content.is_empty() {
            if self.framing == Framing::Pieces {
                let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
                self.waiting.extend(length.to_le_bytes());
            }
            self.waiting.extend(content);
        }
        self.write(channel, outbox);
        Ok(())
    }

    /// The host sends no more.
    pub(crate) fn end(&mut self, channel: u32, outbox: &mut Outbox) {
        if !self.is_ended && self.framing == Framing::Pieces && self.pipe.is_some() {
            self.waiting.extend(0_u32.to_le_bytes());
        }
        self.is_ended = true;
        self.write(channel, outbox);
    }

    /// Writes what the pipe takes.
    pub(crate) fn write(&mut self, channel: u32, outbox: &mut Outbox) {
        while let Some(pipe) = &self.pipe {
            let (next, _) = self.waiting.as_slices();
            if next.is_empty() {
                break;
            }
            match rustix::io::write(pipe, next) {
                Ok(written) => drop(self.waiting.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Nobody reads: what comes is thrown away, and the host is not held up.
                Err(_) => {
                    self.pipe = None;
                    self.waiting = VecDeque::new();
                }
            }
        }
        if self.waiting.is_empty() && self.is_ended {
            self.pipe = None;
        }
        self.grant(channel, outbox);
    }

    fn grant(&mut self, channel: u32, outbox: &mut Outbox) {
        let room = WINDOW.saturating_sub(self.granted + self.waiting.len());
        if !self.is_ended && room >= WINDOW / 4 {
            self.granted += room;
            outbox.credit(channel, u32::try_from(room).unwrap_or(u32::MAX));
        }
    }
}
