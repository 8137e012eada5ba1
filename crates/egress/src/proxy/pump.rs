//! Bytes from one end to the other, until the one that sends has ended; then the end is passed on.
//!
//! A pump holds what it has read and not written yet, so the future over it may be dropped and made anew.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One direction.
#[derive(Debug)]
pub(crate) struct Pump {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Something was written and not seen off.
    Unflushed,
    /// The sender has ended.
    Ending,
    Ended,
}

/// Which end of a direction failed.
#[derive(Debug)]
pub(crate) enum PumpError {
    /// The one that sends.
    Sender(io::Error),
    /// The one that receives.
    Receiver(io::Error),
}

impl Pump {
    /// A pump that begins with `held` and reads as much at a time as it has room for.
    pub(crate) fn new(held: Vec<u8>, buffer_bytes: usize) -> Self {
        let end = held.len();
        let mut buffer = held;
        buffer.resize(end.max(buffer_bytes).max(1), 0);
        Self { buffer, start: 0, end, state: State::Open }
    }

    /// Ready once the sender has ended and the end was passed on.
    pub(crate) fn poll<R, W>(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<Result<(), PumpError>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            while self.start < self.end {
                let rest = &self.buffer[self.start..self.end];
                let count =
                    ready!(Pin::new(&mut *writer).poll_write(context, rest)).map_err(PumpError::Receiver)?;
                if count == 0 {
                    return Poll::Ready(Err(PumpError::Receiver(io::ErrorKind::WriteZero.into())));
                }
                self.start += count;
                if self.state == State::Open {
                    self.state = State::Unflushed;
                }
            }
            (self.start, self.end) = (0, 0);
            match self.state {
                State::Ended => return Poll::Ready(Ok(())),
                State::Ending => {
                    ready!(Pin::new(&mut *writer).poll_shutdown(context)).map_err(PumpError::Receiver)?;
                    self.state = State::Ended;
                    return Poll::Ready(Ok(()));
                }
                State::Open | State::Unflushed => {}
            }
            let mut room = ReadBuf::new(&mut self.buffer);
            match Pin::new(&mut *reader).poll_read(context, &mut room).map_err(PumpError::Sender)? {
                Poll::Ready(()) if room.filled().is_empty() => self.state = State::Ending,
                Poll::Ready(()) => self.end = room.filled().len(),
                Poll::Pending => {
                    // Nothing more to come for now: what was written must not wait for it.
                    if self.state == State::Unflushed {
                        ready!(Pin::new(&mut *writer).poll_flush(context)).map_err(PumpError::Receiver)?;
                        self.state = State::Open;
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}
