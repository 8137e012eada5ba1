//! Parses server-sent events from bytes, which may arrive in pieces of any size.
//!
//! The parser holds at most one unfinished line and one unfinished event, both bounded. They are lost with the connection. Lines end with
//! `\n`, `\r\n` or `\r`. The parser skips a byte order mark, comments and unknown fields. It drops an event that is incomplete at the end
//! of the stream.

/// One event. The texts are borrowed for the duration of the callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field; empty if there was none.
    pub name: &'a str,
    /// The `data` lines, joined by newlines.
    pub data: &'a str,
}

/// Why the bytes are not an acceptable stream of server-sent events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// A line or an event is larger than the limit.
    #[error("an event of the stream is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The bytes are not UTF-8.
    #[error("the stream holds bytes that are not UTF-8")]
    NotUtf8,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An incremental parser. It must not be used after an error.
#[derive(Debug)]
pub struct SseParser {
    /// The limit on one line, and on the data of one event, in bytes.
    limit: usize,
    /// The beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was `\r`. A `\n` right after it belongs to the same line end.
    after_carriage_return: bool,
    first_line: bool,
}

impl SseParser {
    /// Creates a parser for a new stream, with lines and events of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_carriage_return: false,
            first_line: true,
        }
    }

    /// Parses the next piece of the stream and passes each completed event to `on_event`.
    ///
    /// # Errors
    /// [`SseError`], or the first error of `on_event`.
    pub fn push<E: From<SseError>>(
        &mut self,
        piece: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = piece;
        if self.after_carriage_return && !rest.is_empty() {
            self.after_carriage_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = line_end(rest) {
            let (head, tail) = rest.split_at(end);
            if self.line.len().saturating_add(head.len()) > self.limit {
                return Err(SseError::TooLarge { limit: self.limit }.into());
            }
            if self.line.is_empty() {
                self.end_line(head, &mut on_event)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.end_line(&line, &mut on_event)?;
                line.clear();
                self.line = line;
            }
            rest = match tail {
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => tail,
            };
            self.after_carriage_return = tail == b"\r";
        }
        if self.line.len().saturating_add(rest.len()) > self.limit {
            return Err(SseError::TooLarge { limit: self.limit }.into());
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn end_line<E: From<SseError>>(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = if std::mem::take(&mut self.first_line) {
            line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.data.len().saturating_add(value.len()) >= self.limit {
                    return Err(SseError::TooLarge { limit: self.limit }.into());
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments (an empty field name), `id`, `retry` and unknown fields.
            _ => {}
        }
        Ok(())
    }

    fn dispatch<E: From<SseError>>(
        &mut self,
        on_event: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let result = if self.has_data {
            match (std::str::from_utf8(&self.name), std::str::from_utf8(&self.data)) {
                (Ok(name), Ok(data)) => on_event(SseEvent { name, data }),
                _ => Err(SseError::NotUtf8.into()),
            }
        } else {
            Ok(())
        };
        self.name.clear();
        self.data.clear();
        self.has_data = false;
        result
    }
}

/// The position of the first `\n` or `\r`. It checks eight bytes at a time, because this loop sees every byte of every stream.
fn line_end(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The lowest high bit of the result marks the first byte of `word` that is zero.
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found =
            zero_bytes(word ^ (ONES * u64::from(b'\n'))) | zero_bytes(word ^ (ONES * u64::from(b'\r')));
        if found != 0 {
            return Some(index * 8 + (found.trailing_zeros() / 8) as usize);
        }
    }
    rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map(|index| words.len() * 8 + index)
}

#[cfg(test)]
mod tests;
