//! The bodies of HTTP/1 messages: parsing their framing, and copying them.
//!
//! A chunked body is decoded and encoded again, so that the next reader sees our framing only. Extensions and
//! trailers are dropped, and malformed chunks end the connection (RFC 9112, section 7.1). A body of any length needs
//! memory for one buffer only.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::http_framing::{BodyLength, Version};
use crate::proxy::buffered::ReadBuffer;

/// The maximum length of a chunk extension.
const MAX_EXTENSION_BYTES: usize = 256;
/// The maximum length of the trailer section.
const MAX_TRAILER_BYTES: usize = 8 << 10;
/// The maximum number of digits of a chunk's size: enough for any file, and no overflow.
const MAX_SIZE_DIGITS: usize = 15;

/// Why a body was not copied completely.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// Its chunks are malformed.
    Malformed(&'static str),
    /// The connection that the body is read from failed or ended early.
    Read(io::Error),
    /// The connection that the body is written to failed.
    Write(io::Error),
}

/// Copies a body from one connection to the other.
pub(crate) async fn copy_body<R, W>(
    from: &mut ReadBuffer<R>,
    to: &mut W,
    length: BodyLength,
    receiver: Version,
) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match length {
        BodyLength::None => {}
        BodyLength::Exact(mut left) => {
            while left > 0 {
                require_data(from, to).await?;
                let count = from.data().len().min(usize::try_from(left).unwrap_or(usize::MAX));
                write(to, &from.data()[..count]).await?;
                from.consume(count);
                left -= count as u64;
            }
        }
        BodyLength::Chunked => copy_chunked_body(from, to, receiver).await?,
        BodyLength::UntilClose => {
            while wait_for_data(from, to).await? {
                write(to, from.data()).await?;
                from.consume(from.data().len());
            }
        }
    }
    to.flush().await.map_err(BodyError::Write)
}

async fn copy_chunked_body<R, W>(
    from: &mut ReadBuffer<R>,
    to: &mut W,
    receiver: Version,
) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut chunks = ChunkedDecoder::default();
    loop {
        require_data(from, to).await?;
        match chunks.decode(from.data()).map_err(BodyError::Malformed)? {
            ChunkEvent::Framing(count) => from.consume(count),
            ChunkEvent::Content(count) => {
                match receiver {
                    Version::Http10 => write(to, &from.data()[..count]).await?,
                    Version::Http11 => {
                        write(to, format!("{count:x}\r\n").as_bytes()).await?;
                        write(to, &from.data()[..count]).await?;
                        write(to, b"\r\n").await?;
                    }
                }
                from.consume(count);
            }
            ChunkEvent::End(count) => {
                from.consume(count);
                return match receiver {
                    Version::Http10 => Ok(()),
                    Version::Http11 => write(to, b"0\r\n\r\n").await,
                };
            }
        }
    }
}

/// Waits until there is data, and returns whether there is. Buffered output is flushed first.
async fn wait_for_data<R, W>(from: &mut ReadBuffer<R>, to: &mut W) -> Result<bool, BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if from.data().is_empty() {
        to.flush().await.map_err(BodyError::Write)?;
        from.fill().await.map_err(BodyError::Read)?;
    }
    Ok(!from.data().is_empty())
}

/// Waits until there is data. The end of the stream is an error.
async fn require_data<R, W>(from: &mut ReadBuffer<R>, to: &mut W) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if wait_for_data(from, to).await? {
        Ok(())
    } else {
        Err(BodyError::Read(io::ErrorKind::UnexpectedEof.into()))
    }
}

async fn write<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> Result<(), BodyError> {
    to.write_all(bytes).await.map_err(BodyError::Write)
}

/// The meaning of the first bytes of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkEvent {
    /// This many bytes of framing, which may be all of the data.
    Framing(usize),
    /// This many bytes of content.
    Content(usize),
    /// This many bytes of framing, and then the body ends.
    End(usize),
}

/// Incremental decoder of a chunked body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChunkedDecoder(ChunkState);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size {
        value: u64,
        digits: usize,
    },
    Extension {
        value: u64,
        length: usize,
    },
    SizeEnd {
        value: u64,
    },
    Content {
        left: u64,
    },
    ContentEnd,
    ContentEndLine,
    /// At the first byte of a line after the last chunk.
    Trailers {
        length: usize,
    },
    TrailerLine {
        length: usize,
    },
    TrailerEnd {
        length: usize,
    },
    LastEnd,
}

impl Default for ChunkState {
    fn default() -> Self {
        Self::Size { value: 0, digits: 0 }
    }
}

impl ChunkedDecoder {
    /// Decodes the next bytes. `data` must not be empty and must continue where the last event ended.
    pub(crate) fn decode(&mut self, data: &[u8]) -> Result<ChunkEvent, &'static str> {
        for (at, byte) in data.iter().copied().enumerate() {
            self.0 = match self.0 {
                ChunkState::Content { left } if at == 0 => {
                    let count = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - count as u64;
                    self.0 = if left == 0 { ChunkState::ContentEnd } else { ChunkState::Content { left } };
                    return Ok(ChunkEvent::Content(count));
                }
                ChunkState::Content { .. } => return Ok(ChunkEvent::Framing(at)),
                ChunkState::LastEnd if byte == b'\n' => return Ok(ChunkEvent::End(at + 1)),
                state => next_state(state, byte)?,
            };
        }
        Ok(ChunkEvent::Framing(data.len()))
    }
}

fn next_state(state: ChunkState, byte: u8) -> Result<ChunkState, &'static str> {
    Ok(match (state, byte) {
        (ChunkState::Size { digits: MAX_SIZE_DIGITS.., .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
            return Err("a chunk is too large");
        }
        (ChunkState::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
            let digit = char::from(byte).to_digit(16).unwrap_or_default();
            ChunkState::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
        }
        (ChunkState::Size { value, digits: 1.. }, b'\r') => ChunkState::SizeEnd { value },
        (ChunkState::Size { value, digits: 1.. }, b';') => ChunkState::Extension { value, length: 0 },
        (ChunkState::Extension { value, .. }, b'\r') => ChunkState::SizeEnd { value },
        (ChunkState::Extension { value, length }, b'\t' | b' '..=b'~' | 0x80..)
            if length < MAX_EXTENSION_BYTES =>
        {
            ChunkState::Extension { value, length: length + 1 }
        }
        (ChunkState::SizeEnd { value: 0 }, b'\n') => ChunkState::Trailers { length: 0 },
        (ChunkState::SizeEnd { value }, b'\n') => ChunkState::Content { left: value },
        (ChunkState::ContentEnd, b'\r') => ChunkState::ContentEndLine,
        (ChunkState::ContentEndLine, b'\n') => ChunkState::default(),
        (ChunkState::Trailers { .. }, b'\r') => ChunkState::LastEnd,
        (ChunkState::TrailerLine { length }, b'\r') => ChunkState::TrailerEnd { length },
        (ChunkState::TrailerEnd { length }, b'\n') => ChunkState::Trailers { length },
        (
            ChunkState::Trailers { length } | ChunkState::TrailerLine { length },
            b'\t' | b' '..=b'~' | 0x80..,
        ) if length < MAX_TRAILER_BYTES => ChunkState::TrailerLine { length: length + 1 },
        _ => return Err("its chunks are malformed"),
    })
}

#[cfg(test)]
mod tests;
