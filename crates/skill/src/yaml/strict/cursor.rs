//! The text under the scanner: its characters, and the line and column of the one that is next.

use crate::yaml::node::{Mark, Syntax};

/// What stands for the end of the text; no text that is allowed contains it.
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
    /// When a character is not printable: such are not allowed, but by an escape sequence.
    pub(super) fn new(text: &str) -> Result<Self, Syntax> {
        let cursor = Self { chars: text.chars().collect(), index: 0, line: 0, column: 0 };
        let Some(at) = cursor.chars.iter().position(|c| !is_printable(*c)) else { return Ok(cursor) };
        let message = format!("the character U+{:04X} is not allowed", u32::from(cursor.chars[at]));
        let mut place = cursor;
        place.advance(at);
        Err(Syntax { message, mark: place.mark() })
    }

    /// The character `ahead` of the next one.
    pub(super) fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.index + ahead).copied().unwrap_or(END)
    }

    /// The next character.
    pub(super) fn next(&self) -> char {
        self.peek(0)
    }

    /// Passes so many characters.
    pub(super) fn advance(&mut self, count: usize) {
        for _ in 0..count {
            match self.next() {
                '\n' => {
                    self.line += 1;
                    self.column = 0;
                }
                // A byte order mark has no width. Other line breaks than `\n` end a line of text for the scanner, but
                // do not begin a column anew: so the reference counts.
                '\u{feff}' => {}
                _ => self.column += 1,
            }
            self.index += 1;
        }
    }

    /// Passes so many characters, and appends them to a text.
    pub(super) fn take(&mut self, count: usize, into: &mut String) {
        let taken = &self.chars[self.index..(self.index + count).min(self.chars.len())];
        into.extend(taken);
        self.advance(count);
    }

    /// Passes a line break when one is next. Its value is `\n`, or itself for Unicode's separators.
    pub(super) fn line_break(&mut self) -> Option<char> {
        let value = match self.next() {
            '\n' | '\u{85}' => '\n',
            separator @ ('\u{2028}' | '\u{2029}') => separator,
            _ => return None,
        };
        self.advance(1);
        Some(value)
    }

    /// Passes all spaces that are next.
    pub(super) fn spaces(&mut self) {
        while self.next() == ' ' {
            self.advance(1);
        }
    }

    /// How many characters have passed.
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

    /// The place of the next character, for people.
    pub(super) fn mark(&self) -> Mark {
        Mark { line: self.line + 1, column: u32::try_from(self.column).unwrap_or(u32::MAX).saturating_add(1) }
    }

    /// Whether a line of three such characters and nothing else but space begins here.
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
