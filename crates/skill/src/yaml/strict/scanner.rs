//! Converts characters to tokens. Indentation becomes starts and ends of collections.

use super::cursor::{Cursor, END, is_blank_or_end, is_break};
use super::scalar;
use crate::yaml::node::{Mark, Syntax};

/// The maximum length of a key without `?`, in characters.
const MAX_SIMPLE_KEY: usize = 1024;

/// One token, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) mark: Mark,
    /// The column that the indentation rules see, counted from 0.
    pub(super) column: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    SequenceStart,
    MappingStart,
    BlockEnd,
    Entry,
    Key,
    Value,
    Scalar { text: String, plain: bool },
    DocumentEnd,
    StreamEnd,
}

/// All tokens of a text; the last is [`TokenKind::StreamEnd`].
pub(super) fn scan(text: &str) -> Result<Vec<Token>, Syntax> {
    let mut scanner = Scanner {
        cursor: Cursor::new(text)?,
        tokens: Vec::with_capacity(32),
        indents: Vec::new(),
        allow_simple_key: true,
        possible_key: None,
    };
    if scanner.cursor.next() == '\u{feff}' {
        scanner.cursor.advance(1);
    }
    while scanner.step()? {}
    Ok(scanner.tokens)
}

/// A position at which a key without `?` may have begun. It is a key if a `:` follows on the same line.
#[derive(Debug, Clone, Copy)]
struct PossibleKey {
    /// The index at which the token of the key would be inserted.
    token: usize,
    /// Whether there must be a key, because the line begins at the indentation of a mapping.
    required: bool,
    index: usize,
    line: u32,
    column: usize,
    mark: Mark,
}

struct Scanner {
    cursor: Cursor,
    tokens: Vec<Token>,
    /// The columns of the collections that are open, the innermost last.
    indents: Vec<usize>,
    allow_simple_key: bool,
    possible_key: Option<PossibleKey>,
}

impl Scanner {
    /// Scans the next token. Returns false after the last one.
    fn step(&mut self) -> Result<bool, Syntax> {
        self.skip_blanks();
        self.drop_stale_key()?;
        self.unwind(Some(self.cursor.column()));
        let at_line_start = self.cursor.column() == 0;
        let followed_by_blank = is_blank_or_end(self.cursor.peek(1));
        match self.cursor.next() {
            END => {
                self.end_of_document(TokenKind::StreamEnd, 0)?;
                return Ok(false);
            }
            '%' if at_line_start => return Err(self.error("directives are not allowed")),
            '-' if at_line_start && self.cursor.at_document_marker('-') => {
                return Err(self.error("a second document is not allowed"));
            }
            '.' if at_line_start && self.cursor.at_document_marker('.') => {
                self.end_of_document(TokenKind::DocumentEnd, 3)?;
            }
            '[' | '{' => {
                return Err(
                    self.error("flow collections are not allowed: write one entry a line, or quote the text")
                );
            }
            ']' | '}' | ',' => return Err(self.error("a value cannot begin with this character: quote it")),
            '-' if followed_by_blank => self.entry()?,
            '?' if followed_by_blank => self.explicit_key()?,
            ':' if followed_by_blank => self.value()?,
            '*' => return Err(self.error("aliases are not allowed: quote the text")),
            '&' => return Err(self.error("anchors are not allowed: quote the text")),
            '!' => return Err(self.error("tags are not allowed: quote the text")),
            style @ ('|' | '>') => {
                self.allow_simple_key = true;
                self.forget_key()?;
                let (mark, column) = (self.cursor.mark(), self.cursor.column());
                let text = scalar::block(&mut self.cursor, self.indents.last().copied(), style == '>')?;
                self.tokens.push(Token { kind: TokenKind::Scalar { text, plain: false }, mark, column });
            }
            quote @ ('\'' | '"') => {
                self.save_possible_key()?;
                self.allow_simple_key = false;
                let (mark, column) = (self.cursor.mark(), self.cursor.column());
                let text = scalar::quoted(&mut self.cursor, quote)?;
                self.tokens.push(Token { kind: TokenKind::Scalar { text, plain: false }, mark, column });
            }
            first => self.plain(first, followed_by_blank)?,
        }
        Ok(true)
    }

    fn plain(&mut self, first: char, followed_by_blank: bool) -> Result<(), Syntax> {
        let starts = match first {
            '-' | '?' | ':' => !followed_by_blank,
            '#' | '%' | '@' | '`' => false,
            other => !is_blank_or_end(other),
        };
        if !starts {
            let name = if first == '\t' { "a tab".to_owned() } else { format!("`{first}`") };
            return Err(self.error(&format!("{name} cannot begin a value: quote it")));
        }
        self.save_possible_key()?;
        self.allow_simple_key = false;
        let (mark, column) = (self.cursor.mark(), self.cursor.column());
        let scanned = scalar::plain(&mut self.cursor, self.indents.last().copied());
        if scanned.passed_line_break {
            self.allow_simple_key = true;
        }
        self.tokens.push(Token { kind: TokenKind::Scalar { text: scanned.text, plain: true }, mark, column });
        Ok(())
    }

    /// Skips spaces, comments and line breaks. After an empty line it also skips tabs, as the reference does.
    fn skip_blanks(&mut self) {
        loop {
            self.cursor.spaces();
            if self.cursor.next() == '#' {
                while !super::cursor::is_break_or_end(self.cursor.next()) {
                    self.cursor.advance(1);
                }
                while self.cursor.line_break().is_some() {}
                self.allow_simple_key = true;
            } else if self.cursor.line_break().is_some() {
                self.allow_simple_key = true;
                if self.cursor.next() == '\n' {
                    while is_break(self.cursor.next()) || matches!(self.cursor.next(), ' ' | '\t') {
                        self.cursor.advance(1);
                    }
                }
            } else {
                return;
            }
        }
    }

    fn entry(&mut self) -> Result<(), Syntax> {
        if !self.allow_simple_key {
            return Err(self.error("a list cannot start here: put it on its own line"));
        }
        if self.indent() {
            self.push(TokenKind::SequenceStart);
        }
        self.allow_simple_key = true;
        self.forget_key()?;
        self.push(TokenKind::Entry);
        self.cursor.advance(1);
        Ok(())
    }

    fn explicit_key(&mut self) -> Result<(), Syntax> {
        if !self.allow_simple_key {
            return Err(self.error("a key cannot start here: put it on its own line"));
        }
        if self.indent() {
            self.push(TokenKind::MappingStart);
        }
        self.allow_simple_key = true;
        self.forget_key()?;
        self.push(TokenKind::Key);
        self.cursor.advance(1);
        Ok(())
    }

    fn value(&mut self) -> Result<(), Syntax> {
        if let Some(key) = self.possible_key.take() {
            let token = |kind| Token { kind, mark: key.mark, column: key.column };
            self.tokens.insert(key.token, token(TokenKind::Key));
            if self.indents.last().is_none_or(|indent| *indent < key.column) {
                self.indents.push(key.column);
                self.tokens.insert(key.token, token(TokenKind::MappingStart));
            }
            self.allow_simple_key = false;
        } else {
            if !self.allow_simple_key {
                return Err(self.error("a second `: ` is not allowed here: quote the text"));
            }
            if self.indent() {
                self.push(TokenKind::MappingStart);
            }
            self.allow_simple_key = true;
            self.forget_key()?;
        }
        self.push(TokenKind::Value);
        self.cursor.advance(1);
        Ok(())
    }

    fn end_of_document(&mut self, kind: TokenKind, width: usize) -> Result<(), Syntax> {
        self.unwind(None);
        self.forget_key()?;
        self.allow_simple_key = false;
        self.push(kind);
        self.cursor.advance(width);
        Ok(())
    }

    /// Records that a key may begin here.
    fn save_possible_key(&mut self) -> Result<(), Syntax> {
        if !self.allow_simple_key {
            return Ok(());
        }
        let required = self.indents.last() == Some(&self.cursor.column());
        self.forget_key()?;
        self.possible_key = Some(PossibleKey {
            token: self.tokens.len(),
            required,
            index: self.cursor.index(),
            line: self.cursor.line(),
            column: self.cursor.column(),
            mark: self.cursor.mark(),
        });
        Ok(())
    }

    /// Drops a possible key that can no longer be one: a key is on one line, and is not too long.
    fn drop_stale_key(&mut self) -> Result<(), Syntax> {
        match self.possible_key {
            Some(key)
                if key.line != self.cursor.line() || self.cursor.index() - key.index > MAX_SIMPLE_KEY =>
            {
                self.forget_key()
            }
            _ => Ok(()),
        }
    }

    fn forget_key(&mut self) -> Result<(), Syntax> {
        match self.possible_key.take() {
            Some(PossibleKey { required: true, mark, .. }) => {
                Err(Syntax { message: "expected `key: value`, found no `: ` on this line".to_owned(), mark })
            }
            _ => Ok(()),
        }
    }

    /// Opens a collection at the current column, if that is deeper than the innermost one. Returns whether it did.
    fn indent(&mut self) -> bool {
        let column = self.cursor.column();
        let deeper = self.indents.last().is_none_or(|indent| *indent < column);
        if deeper {
            self.indents.push(column);
        }
        deeper
    }

    /// Closes the collections that are deeper than the column; `None` closes all.
    fn unwind(&mut self, column: Option<usize>) {
        while self.indents.last().is_some_and(|indent| column.is_none_or(|column| *indent > column)) {
            self.indents.pop();
            self.push(TokenKind::BlockEnd);
        }
    }

    fn push(&mut self, kind: TokenKind) {
        self.tokens.push(Token { kind, mark: self.cursor.mark(), column: self.cursor.column() });
    }

    fn error(&self, message: &str) -> Syntax {
        Syntax { message: message.to_owned(), mark: self.cursor.mark() }
    }
}
