//! The scanner's position in the text: the next character, and its line and column.

use crate::yaml::node::{Mark, Syntax};

/// Marks the end of the text. No allowed text contains this character.
pub(super) const END: char = '\0';

/// A position in a text, with the column as the scanner's rules count it.
#[derive(Debug)]
pub(super) struct Cursor {
    chars: Vec<char>,
    index: usize,
    line: u32,
    column: usize,
}

impl Cursor {
    /// Starts at the beginning of a text.
    ///
    /// # Errors
    /// When a character is not printable. Such characters are only allowed as escape sequences.
    pub(super) fn new(text: &str) -> Result<Self, Syntax> {
        let cursor = Self { chars: text.chars().collect(), index: 0, line: 0, column: 0 };
        let Some(at) = cursor.chars.iter().position(|c| !is_printable(*c)) else { return Ok(cursor) };
        let message = format!("the character U+{:04X} is not allowed", u32::from(cursor.chars[at]));
        let mut place = cursor;
        place.advance(at);
        Err(Syntax { message, mark: place.mark() })
    }

    /// The character at this distance from the next one.
    pub(super) fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.index + ahead).copied().unwrap_or(END)
    }

    /// The next character.
    pub(super) fn next(&self) -> char {
        self.peek(0)
    }

    /// Moves past this many characters.
    pub(super) fn advance(&mut self, count: usize) {
        for _ in 0..count {
            match self.next() {
                '\n' => {
                    self.line += 1;
                    self.column = 0;
                }
                // A byte order mark has no width. Line breaks other than `\n` end a line for the scanner, but do not
                // reset the column: the reference counts in this way.
                '\u{feff}' => {}
                _ => self.column += 1,
            }
            self.index += 1;
        }
    }

    /// Moves past this many characters, and appends them to a text.
    pub(super) fn take(&mut self, count: usize, into: &mut String) {
        let taken = &self.chars[self.index..(self.index + count).min(self.chars.len())];
        into.extend(taken);
        self.advance(count);
    }

    /// Moves past a line break, if one is next. Returns `\n`, or for Unicode's separators the character itself.
    pub(super) fn line_break(&mut self) -> Option<char> {
        let value = match self.next() {
            '\n' | '\u{85}' => '\n',
            separator @ ('\u{2028}' | '\u{2029}') => separator,
            _ => return None,
        };
        self.advance(1);
        Some(value)
    }

    /// Moves past all spaces that are next.
    pub(super) fn spaces(&mut self) {
        while self.next() == ' ' {
            self.advance(1);
        }
    }

    /// The number of characters before the next one.
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// The line, counted from 0.
    pub(super) const fn line(&self) -> u32 {
        self.line
    }

    /// The column, counted from 0.
    pub(super) const fn column(&self) -> usize {
        self.column
    }

    /// The position of the next character, for messages.
    pub(super) fn mark(&self) -> Mark {
        Mark { line: self.line + 1, column: u32::try_from(self.column).unwrap_or(u32::MAX).saturating_add(1) }
    }

    /// Whether a document marker is next: three of this character, and then a blank or the end of the line or text.
    pub(super) fn at_document_marker(&self, character: char) -> bool {
        (0..3).all(|ahead| self.peek(ahead) == character) && is_blank_or_end(self.peek(3))
    }
}

/// Whether the character ends a line, or the text.
pub(super) const fn is_break_or_end(c: char) -> bool {
    matches!(c, END | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether the character ends a line.
pub(super) const fn is_break(c: char) -> bool {
    is_break_or_end(c) && c != END
}

/// Whether the character is a space, a tab, the end of a line or of the text.
pub(super) const fn is_blank_or_end(c: char) -> bool {
    matches!(c, ' ' | '\t') || is_break_or_end(c)
}

const fn is_printable(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
