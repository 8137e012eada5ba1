//! Copies one direction of a connection until the sender has closed, and then closes the receiver.
//!
//! A copy keeps the bytes that were read and not written yet, so the future that polls it may be dropped and recreated.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One direction of a bidirectional copy.
#[derive(Debug)]
pub(crate) struct HalfCopy {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    state: CopyState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyState {
    Open,
    /// Bytes were written and not flushed.
    Unflushed,
    /// The sender has closed.
    Ending,
    Ended,
}

/// Which side of a copy failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The side that is read.
    Read(io::Error),
    /// The side that is written.
    Write(io::Error),
}

impl HalfCopy {
    /// Creates a copy that starts with the bytes `initial_bytes` and reads at most `buffer_bytes` at once.
    pub(crate) fn new(initial_bytes: Vec<u8>, buffer_bytes: usize) -> Self {
        let end = initial_bytes.len();
        let mut buffer = initial_bytes;
        buffer.resize(end.max(buffer_bytes).max(1), 0);
        Self { buffer, start: 0, end, state: CopyState::Open }
    }

    /// Ready once the sender has closed and the receiver was closed.
    pub(crate) fn poll<R, W>(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<Result<(), CopyError>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            while self.start < self.end {
                let rest = &self.buffer[self.start..self.end];
                let count =
                    ready!(Pin::new(&mut *writer).poll_write(context, rest)).map_err(CopyError::Write)?;
                if count == 0 {
                    return Poll::Ready(Err(CopyError::Write(io::ErrorKind::WriteZero.into())));
                }
                self.start += count;
                if self.state == CopyState::Open {
                    self.state = CopyState::Unflushed;
                }
            }
            (self.start, self.end) = (0, 0);
            match self.state {
                CopyState::Ended => return Poll::Ready(Ok(())),
                CopyState::Ending => {
                    ready!(Pin::new(&mut *writer).poll_shutdown(context)).map_err(CopyError::Write)?;
                    self.state = CopyState::Ended;
                    return Poll::Ready(Ok(()));
                }
                CopyState::Open | CopyState::Unflushed => {}
            }
            let mut room = ReadBuf::new(&mut self.buffer);
            match Pin::new(&mut *reader).poll_read(context, &mut room).map_err(CopyError::Read)? {
                Poll::Ready(()) if room.filled().is_empty() => self.state = CopyState::Ending,
                Poll::Ready(()) => self.end = room.filled().len(),
                Poll::Pending => {
                    // No more data is available now, and written bytes must not wait for it.
                    if self.state == CopyState::Unflushed {
                        ready!(Pin::new(&mut *writer).poll_flush(context)).map_err(CopyError::Write)?;
                        self.state = CopyState::Open;
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}
