//! One end of a connection: what was read from it and not used yet, and the end that writes.
//!
//! A read that is cancelled has read nothing, and what was read stays until it is used, so every future over an
//! [`Inbox`] may be dropped and another one take over.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::activity::{Activity, Watched};

/// What was read and not used yet.
#[derive(Debug)]
pub(crate) struct Inbox<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    first_size: usize,
}

impl<R: AsyncRead + Unpin> Inbox<R> {
    /// Nothing yet, and no memory yet: a buffer of `size` bytes is made at the first read.
    pub(crate) fn new(reader: R, size: usize) -> Self {
        Self { reader, buffer: Vec::new(), start: 0, end: 0, first_size: size.max(1) }
    }

    /// What is there.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The first `count` bytes of what is there were used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more behind what is there, and says how much: 0 at the end of the stream. The buffer grows as it has to;
    /// the caller stops asking once there is more than it wants to hold.
    pub(crate) async fn more(&mut self) -> io::Result<usize> {
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

    /// The reader, and what is there, in a buffer that has room for more.
    pub(crate) fn parts(&mut self) -> (&mut R, Vec<u8>) {
        let size = self.data().len().max(self.first_size);
        let mut held = Vec::with_capacity(size);
        held.extend_from_slice(self.data());
        self.consume(held.len());
        self.buffer = Vec::new();
        (&mut self.reader, held)
    }

    /// Reads and forgets until the end of the stream.
    pub(crate) async fn discard(&mut self) -> io::Result<()> {
        loop {
            self.consume(self.data().len());
            if self.more().await? == 0 {
                return Ok(());
            }
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Peer<S> {
    pub(crate) inbox: Inbox<ReadHalf<Watched<S>>>,
    pub(crate) writer: WriteHalf<Watched<S>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) fn new(stream: S, activity: &Activity, buffer_bytes: usize) -> Self {
        let (reader, writer) = tokio::io::split(Watched::new(stream, activity));
        Self { inbox: Inbox::new(reader, buffer_bytes), writer }
    }

    /// The first byte that was not used yet, waiting for it if there is none; `None` at the end of the stream.
    pub(crate) async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        if self.inbox.data().is_empty() && self.inbox.more().await? == 0 {
            return Ok(None);
        }
        Ok(self.inbox.data().first().copied())
    }

    /// Writes all of it, and sees it off.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await
    }

    /// Writes no more, and reads on until the other side has hung up too: closing a socket with unread bytes would
    /// reset it, and the answer would be lost on its way.
    pub(crate) async fn farewell(&mut self) -> io::Result<()> {
        self.writer.shutdown().await?;
        self.inbox.discard().await
    }
}
