//! A stream with a read buffer.
//!
//! Reads are cancel-safe: a cancelled read has read nothing, and unread bytes stay in the buffer. So a future over a [`ReadBuffer`]
//! may be dropped and another one may continue.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::idle_timeout::{IdleTimeout, IdleTrackedStream};

/// A reader and the bytes that were read and not used yet.
#[derive(Debug)]
pub(crate) struct ReadBuffer<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    first_size: usize,
}

impl<R: AsyncRead + Unpin> ReadBuffer<R> {
    /// An empty buffer without memory. A buffer of `size` bytes is allocated by the first read.
    pub(crate) fn new(reader: R, size: usize) -> Self {
        Self { reader, buffer: Vec::new(), start: 0, end: 0, first_size: size.max(1) }
    }

    /// The unused bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Marks the first `count` unused bytes as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more bytes and returns how many: 0 at the end of the stream. The buffer grows as needed, so the caller must stop at its
    /// own limit.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            self.buffer.resize((2 * self.buffer.len()).max(self.first_size), 0);
        }
        let count = self.reader.read(&mut self.buffer[self.end..]).await?;
        self.end += count;
        Ok(count)
    }

    /// The reader, and the unused bytes in a buffer with room for more.
    pub(crate) fn take(&mut self) -> (&mut R, Vec<u8>) {
        let size = self.data().len().max(self.first_size);
        let mut held = Vec::with_capacity(size);
        held.extend_from_slice(self.data());
        self.consume(held.len());
        self.buffer = Vec::new();
        (&mut self.reader, held)
    }

    /// Reads and discards until the end of the stream.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        loop {
            self.consume(self.data().len());
            if self.fill().await? == 0 {
                return Ok(());
            }
        }
    }
}

/// A stream with a buffered reader and a writer.
#[derive(Debug)]
pub(crate) struct BufferedStream<S> {
    pub(crate) reader: ReadBuffer<ReadHalf<IdleTrackedStream<S>>>,
    pub(crate) writer: WriteHalf<IdleTrackedStream<S>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> BufferedStream<S> {
    pub(crate) fn new(stream: S, idle_timeout: &IdleTimeout, buffer_bytes: usize) -> Self {
        let (reader, writer) = tokio::io::split(IdleTrackedStream::new(stream, idle_timeout));
        Self { reader: ReadBuffer::new(reader, buffer_bytes), writer }
    }

    /// Waits for the first unused byte, and returns it; `None` at the end of the stream.
    pub(crate) async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        if self.reader.data().is_empty() && self.reader.fill().await? == 0 {
            return Ok(None);
        }
        Ok(self.reader.data().first().copied())
    }

    /// Writes all bytes and flushes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await
    }

    /// Closes the writing direction, and reads until the other side has closed, too. Closing a socket with unread bytes would reset
    /// the connection, and the response would be lost.
    pub(crate) async fn close_and_drain(&mut self) -> io::Result<()> {
        self.writer.shutdown().await?;
        self.reader.drain().await
    }
}
