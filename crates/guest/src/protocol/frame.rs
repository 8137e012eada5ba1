//! Frames: the header, the kinds, and an incremental decoder.

/// The length of a frame's header in bytes: payload length (`u32`), kind (`u8`), channel (`u32`), all little
/// endian.
pub const HEADER_LEN: usize = 9;

/// The maximum payload of a frame in bytes. Larger content is sent as data frames.
pub const PAYLOAD_MAX: usize = 1024 * 1024;

/// The maximum content of a data frame in bytes. Its payload has one more byte, the stream id.
pub const DATA_MAX: usize = 64 * 1024;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Host to guest, first frame, channel 0: JSON [`super::Hello`].
    Hello = 1,
    /// Guest to host, first frame, channel 0: JSON [`super::Welcome`].
    Welcome = 2,
    /// Host to guest: a new operation on a channel that was never used, below [`super::FIRST_TUNNEL`]; JSON
    /// [`super::Open`].
    Open = 3,
    /// Both ways: one byte of [`StreamId`], then content, at most [`DATA_MAX`] bytes of it.
    Data = 4,
    /// Both ways: the sender accepts this many more bytes of content; `u32`.
    Credit = 5,
    /// Host to guest, on tunnels both ways: no more data follows on this channel. Empty.
    Eof = 6,
    /// Host to guest: end the operation and everything it started; `Done` still follows. Empty.
    Cancel = 7,
    /// Guest to host, last frame of a channel: JSON `Result<`[`super::Reply`]`, `[`super::GuestError`]`>`, on tunnels
    /// empty.
    Done = 8,
    /// Guest to host: a new tunnel, on the next number from [`super::FIRST_TUNNEL`] on. The payload is the host's
    /// initial credit; `u32`.
    Tunnel = 9,
}

impl FrameKind {
    const ALL: [Self; 9] = [
        Self::Hello,
        Self::Welcome,
        Self::Open,
        Self::Data,
        Self::Credit,
        Self::Eof,
        Self::Cancel,
        Self::Done,
        Self::Tunnel,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The stream that a data frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamId {
    /// Standard input, or the content of a file.
    Content = 0,
    /// Standard output, with standard error if merged.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

impl StreamId {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Content, Self::Stdout, Self::Stderr].into_iter().find(|stream| *stream as u8 == byte)
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: FrameKind,
    /// Its channel; 0 for the handshake.
    pub channel: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Bytes that are no frame. The stream cannot be used any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header names a kind that does not exist.
    #[error("frame of unknown kind {0}")]
    UnknownKind(u8),
    /// The header claims more than a frame may carry.
    #[error("frame of {0} bytes, the most is {PAYLOAD_MAX}")]
    TooLong(u32),
    /// The payload does not match the frame's kind.
    #[error("malformed {kind:?} frame: {reason}")]
    Malformed {
        /// The kind of the frame.
        kind: FrameKind,
        /// What is wrong with it.
        reason: String,
    },
}

/// Appends a frame to `buffer`.
///
/// # Errors
/// When the payload is longer than [`PAYLOAD_MAX`]; `buffer` is unchanged then.
pub fn encode_into(
    buffer: &mut Vec<u8>,
    kind: FrameKind,
    channel: u32,
    payload: &[u8],
) -> Result<(), FrameError> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    if payload.len() > PAYLOAD_MAX {
        return Err(FrameError::TooLong(length));
    }
    buffer.reserve(HEADER_LEN + payload.len());
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.push(kind as u8);
    buffer.extend_from_slice(&channel.to_le_bytes());
    buffer.extend_from_slice(payload);
    Ok(())
}

/// Appends a data frame to `buffer`, without another copy of `content`.
///
/// # Errors
/// When `content` is longer than [`DATA_MAX`]; `buffer` is unchanged then.
pub fn encode_data_into(
    buffer: &mut Vec<u8>,
    channel: u32,
    stream: StreamId,
    content: &[u8],
) -> Result<(), FrameError> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).saturating_add(1);
    if content.len() > DATA_MAX {
        return Err(FrameError::TooLong(length));
    }
    buffer.reserve(HEADER_LEN + 1 + content.len());
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.push(FrameKind::Data as u8);
    buffer.extend_from_slice(&channel.to_le_bytes());
    buffer.push(stream as u8);
    buffer.extend_from_slice(content);
    Ok(())
}

/// Decodes frames from a byte stream. It holds at most one frame and the bytes of the last push.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How much of `buffer` was returned already.
    start: usize,
}

impl Decoder {
    /// Creates a decoder for the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the stream. Take all frames with [`Decoder::next_frame`] before you push more.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.drain(..self.start);
        }
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// When the header is invalid. The stream is unusable from there on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some(([l0, l1, l2, l3, kind, c0, c1, c2, c3], body)) = rest.split_first_chunk::<HEADER_LEN>()
        else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
        let kind = FrameKind::from_byte(*kind).ok_or(FrameError::UnknownKind(*kind))?;
        let size = length as usize;
        if size > PAYLOAD_MAX {
            return Err(FrameError::TooLong(length));
        }
        let Some(payload) = body.get(..size) else { return Ok(None) };
        let frame =
            Frame { kind, channel: u32::from_le_bytes([*c0, *c1, *c2, *c3]), payload: payload.to_vec() };
        self.start += HEADER_LEN + size;
        Ok(Some(frame))
    }

    /// Returns the number of bytes that are buffered.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the bytes so far end between two frames.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.start == self.buffer.len()
    }
}

impl Frame {
    /// Returns the stream and the content of a data frame.
    ///
    /// # Errors
    /// When it is empty, names an unknown stream, or is longer than [`DATA_MAX`].
    pub fn data(&self) -> Result<(StreamId, &[u8]), FrameError> {
        let malformed = |reason: &str| FrameError::Malformed { kind: self.kind, reason: reason.to_owned() };
        let (id, content) = self.payload.split_first().ok_or_else(|| malformed("it is empty"))?;
        let stream = StreamId::from_byte(*id).ok_or_else(|| malformed("unknown stream"))?;
        if content.len() > DATA_MAX {
            return Err(malformed("too much content"));
        }
        Ok((stream, content))
    }

    /// Returns the bytes that a credit or tunnel frame grants.
    ///
    /// # Errors
    /// When the payload is not four bytes.
    pub fn credit(&self) -> Result<u32, FrameError> {
        self.payload.as_slice().try_into().map(u32::from_le_bytes).map_err(|_| FrameError::Malformed {
            kind: self.kind,
            reason: "it must be four bytes".to_owned(),
        })
    }

    /// Decodes the JSON payload.
    ///
    /// # Errors
    /// When the payload is not JSON of this type.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, FrameError> {
        serde_json::from_slice(&self.payload)
            .map_err(|error| FrameError::Malformed { kind: self.kind, reason: one_line(&error.to_string()) })
    }
}

/// Shortens an error's text and replaces control characters. The text may quote a megabyte of the other side, and
/// it goes to logs, terminals and models.
fn one_line(text: &str) -> String {
    const MOST: usize = 200;
    let mut characters = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    let mut line: String = characters.by_ref().take(MOST).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}
