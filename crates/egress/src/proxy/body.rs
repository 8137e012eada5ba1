//! The bodies of HTTP/1 messages: how long they are, and passing them on.
//!
//! A chunked body is taken apart and put together again, so that what the next reader sees is framed by us:
//! extensions and trailers are dropped, and what does not keep to the format (RFC 9112, section 7.1) ends the
//! connection. Memory is that of one buffer, however long the body is.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::head::Version;
use super::peer::Inbox;

/// The longest chunk extension, in bytes.
const LONGEST_EXTENSION: usize = 256;
/// The longest trailer section, in bytes.
const LONGEST_TRAILERS: usize = 8 << 10;
/// The most digits of a chunk's size: more than any file, less than overflows.
const MOST_DIGITS: usize = 15;

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// There is none.
    None,
    /// By its size in bytes.
    Exactly(u64),
    /// By its last chunk.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// Why a body was not passed on whole.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It does not keep to the format.
    Malformed(&'static str),
    /// The connection it came from ended early.
    Source(io::Error),
    /// The connection it went to takes no more.
    Sink(io::Error),
}

/// Passes a body on.
pub(crate) async fn pass_on<R, W>(
    from: &mut Inbox<R>,
    to: &mut W,
    length: Length,
    receiver: Version,
) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match length {
        Length::None => {}
        Length::Exactly(mut left) => {
            while left > 0 {
                fill(from, to).await?;
                let count = from.data().len().min(usize::try_from(left).unwrap_or(usize::MAX));
                write(to, &from.data()[..count]).await?;
                from.consume(count);
                left -= count as u64;
            }
        }
        Length::Chunked => pass_on_chunks(from, to, receiver).await?,
        Length::UntilClose => {
            while wait(from, to).await? {
                write(to, from.data()).await?;
                from.consume(from.data().len());
            }
        }
    }
    to.flush().await.map_err(BodyError::Sink)
}

async fn pass_on_chunks<R, W>(from: &mut Inbox<R>, to: &mut W, receiver: Version) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut chunks = Chunks::default();
    loop {
        fill(from, to).await?;
        match chunks.step(from.data()).map_err(BodyError::Malformed)? {
            Step::Framing(count) => from.consume(count),
            Step::Content(count) => {
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
            Step::End(count) => {
                from.consume(count);
                return match receiver {
                    Version::Http10 => Ok(()),
                    Version::Http11 => write(to, b"0\r\n\r\n").await,
                };
            }
        }
    }
}

/// Waits until there is something, and says whether there is. What was written does not wait with it.
async fn wait<R, W>(from: &mut Inbox<R>, to: &mut W) -> Result<bool, BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if from.data().is_empty() {
        to.flush().await.map_err(BodyError::Sink)?;
        from.more().await.map_err(BodyError::Source)?;
    }
    Ok(!from.data().is_empty())
}

/// The same where there must be something.
async fn fill<R, W>(from: &mut Inbox<R>, to: &mut W) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if wait(from, to).await? { Ok(()) } else { Err(BodyError::Source(io::ErrorKind::UnexpectedEof.into())) }
}

async fn write<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> Result<(), BodyError> {
    to.write_all(bytes).await.map_err(BodyError::Sink)
}

/// What the front of the bytes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes of framing, which may be all there is.
    Framing(usize),
    /// So many bytes of content.
    Content(usize),
    /// So many bytes of framing, and the body has ended.
    End(usize),
}

/// Takes a chunked body apart, piece by piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chunks(State);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
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
    /// At the first byte of a line behind the last chunk.
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

impl Default for State {
    fn default() -> Self {
        Self::Size { value: 0, digits: 0 }
    }
}

impl Chunks {
    /// What the front of `data` is, which must not be empty and must be what follows what was given before.
    pub(crate) fn step(&mut self, data: &[u8]) -> Result<Step, &'static str> {
        for (at, byte) in data.iter().copied().enumerate() {
            self.0 = match self.0 {
                State::Content { left } if at == 0 => {
                    let count = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - count as u64;
                    self.0 = if left == 0 { State::ContentEnd } else { State::Content { left } };
                    return Ok(Step::Content(count));
                }
                State::Content { .. } => return Ok(Step::Framing(at)),
                State::LastEnd if byte == b'\n' => return Ok(Step::End(at + 1)),
                state => next(state, byte)?,
            };
        }
        Ok(Step::Framing(data.len()))
    }
}

fn next(state: State, byte: u8) -> Result<State, &'static str> {
    Ok(match (state, byte) {
        (State::Size { digits: MOST_DIGITS.., .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
            return Err("a chunk is too large");
        }
        (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
            let digit = char::from(byte).to_digit(16).unwrap_or_default();
            State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
        }
        (State::Size { value, digits: 1.. }, b'\r') => State::SizeEnd { value },
        (State::Size { value, digits: 1.. }, b';') => State::Extension { value, length: 0 },
        (State::Extension { value, .. }, b'\r') => State::SizeEnd { value },
        (State::Extension { value, length }, b'\t' | b' '..=b'~' | 0x80..) if length < LONGEST_EXTENSION => {
            State::Extension { value, length: length + 1 }
        }
        (State::SizeEnd { value: 0 }, b'\n') => State::Trailers { length: 0 },
        (State::SizeEnd { value }, b'\n') => State::Content { left: value },
        (State::ContentEnd, b'\r') => State::ContentEndLine,
        (State::ContentEndLine, b'\n') => State::default(),
        (State::Trailers { .. }, b'\r') => State::LastEnd,
        (State::TrailerLine { length }, b'\r') => State::TrailerEnd { length },
        (State::TrailerEnd { length }, b'\n') => State::Trailers { length },
        (State::Trailers { length } | State::TrailerLine { length }, b'\t' | b' '..=b'~' | 0x80..)
            if length < LONGEST_TRAILERS =>
        {
            State::TrailerLine { length: length + 1 }
        }
        _ => return Err("its chunks are malformed"),
    })
}

#[cfg(test)]
mod tests;
