//! Reads lines of a limited length, without editing.

use std::io::{self, BufRead};

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlainLine {
    /// Its text, without the line end. The last line may lack one.
    Text(String),
    /// The line is longer than the limit. The rest of it was skipped.
    TooLong,
    /// The line is not UTF-8.
    NotText,
    /// There are no more lines.
    End,
}

/// Reads a line of at most `limit` bytes.
pub(super) fn read_line(input: &mut impl BufRead, limit: usize) -> io::Result<PlainLine> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    let mut has_content = false;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            break;
        }
        has_content = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > limit {
            is_too_long = true;
            line = Vec::new();
        } else if !is_too_long {
            line.extend_from_slice(part);
        }
        let consumed = end.map_or(available.len(), |end| end + 1);
        input.consume(consumed);
        if end.is_some() {
            break;
        }
    }
    if !has_content {
        return Ok(PlainLine::End);
    }
    if is_too_long {
        return Ok(PlainLine::TooLong);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8(line).map_or(PlainLine::NotText, PlainLine::Text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], limit: usize) -> Vec<PlainLine> {
        // A small buffer, so that a line arrives in pieces.
        let mut input = io::BufReader::with_capacity(3, bytes);
        let mut found = Vec::new();
        loop {
            match read_line(&mut input, limit).unwrap() {
                PlainLine::End => return found,
                line => found.push(line),
            }
        }
    }

    fn text(text: &str) -> PlainLine {
        PlainLine::Text(text.to_owned())
    }

    #[test]
    fn lines_end_with_the_input_at_the_latest() {
        assert_eq!(lines(b"one\r\n\ntwo", 100), [text("one"), text(""), text("two")]);
        assert_eq!(lines(b"", 100), []);
        assert_eq!(lines("ä€\n".as_bytes(), 100), [text("ä€")]);
    }

    #[test]
    fn a_line_that_cannot_be_used_does_not_end_the_input() {
        assert_eq!(
            lines(b"1234\n123456\n\xff\xfe\nx\n", 5),
            [text("1234"), PlainLine::TooLong, PlainLine::NotText, text("x")]
        );
        assert_eq!(lines(&[b'a'; 1000], 5), [PlainLine::TooLong]);
    }
}
