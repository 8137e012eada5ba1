//! The five styles of a scalar: plain, single quoted, double quoted, literal and folded.

use super::cursor::{Cursor, END, is_blank_or_end, is_break, is_break_or_end};
use crate::yaml::node::{Mark, Syntax};

/// The initial capacity of a value. Most values fit, so they are not moved while they grow.
const USUAL_BYTES: usize = 32;

/// A plain scalar, which may run over several lines.
pub(super) struct Plain {
    pub(super) text: String,
    /// Whether a line break follows the scalar's last word. The cursor is then already after it.
    pub(super) passed_line_break: bool,
}

/// Scans a plain scalar below the innermost collection's column.
pub(super) fn plain(cursor: &mut Cursor, parent: Option<usize>) -> Plain {
    let indent = parent.map_or(0, |parent| parent + 1);
    let mut text = String::with_capacity(USUAL_BYTES);
    let mut spaces = String::new();
    let mut passed_line_break = false;
    loop {
        if cursor.next() == '#' {
            break;
        }
        let mut length = 0;
        loop {
            let c = cursor.peek(length);
            if is_blank_or_end(c) || (c == ':' && is_blank_or_end(cursor.peek(length + 1))) {
                break;
            }
            length += 1;
        }
        if length == 0 {
            break;
        }
        passed_line_break = false;
        text.push_str(&spaces);
        cursor.take(length, &mut text);
        spaces.clear();
        match plain_spaces(cursor, &mut spaces) {
            Gap::Spaces => {}
            Gap::Lines => passed_line_break = true,
            Gap::DocumentMarker => {
                passed_line_break = true;
                break;
            }
        }
        if spaces.is_empty() || cursor.next() == '#' || cursor.column() < indent {
            break;
        }
    }
    Plain { text, passed_line_break }
}

/// The separator of two words of a plain scalar.
enum Gap {
    Spaces,
    Lines,
    DocumentMarker,
}

fn plain_spaces(cursor: &mut Cursor, into: &mut String) -> Gap {
    let mut length = 0;
    while cursor.peek(length) == ' ' {
        length += 1;
    }
    if !is_break(cursor.peek(length)) {
        cursor.take(length, into);
        return Gap::Spaces;
    }
    cursor.advance(length);
    let Some(line_break) = cursor.line_break() else { return Gap::Spaces };
    let at_marker = |cursor: &Cursor| cursor.at_document_marker('-') || cursor.at_document_marker('.');
    if at_marker(cursor) {
        return Gap::DocumentMarker;
    }
    let mut breaks = String::new();
    loop {
        if cursor.next() == ' ' {
            cursor.advance(1);
        } else if let Some(value) = cursor.line_break() {
            breaks.push(value);
            if at_marker(cursor) {
                return Gap::DocumentMarker;
            }
        } else {
            break;
        }
    }
    fold(line_break, &breaks, into);
    Gap::Lines
}

/// Folds a line break within a scalar to a space, unless empty lines follow it.
fn fold(line_break: char, breaks: &str, into: &mut String) {
    if line_break != '\n' {
        into.push(line_break);
    } else if breaks.is_empty() {
        into.push(' ');
    }
    into.push_str(breaks);
}

/// Scans a scalar in single or double quotes.
pub(super) fn quoted(cursor: &mut Cursor, quote: char) -> Result<String, Syntax> {
    let start = cursor.mark();
    cursor.advance(1);
    let mut text = String::new();
    quoted_words(cursor, quote, start, &mut text)?;
    while cursor.next() != quote {
        quoted_spaces(cursor, start, &mut text)?;
        quoted_words(cursor, quote, start, &mut text)?;
    }
    cursor.advance(1);
    Ok(text)
}

fn quoted_words(cursor: &mut Cursor, quote: char, start: Mark, text: &mut String) -> Result<(), Syntax> {
    loop {
        let mut length = 0;
        while !is_blank_or_end(cursor.peek(length)) && !matches!(cursor.peek(length), '\'' | '"' | '\\') {
            length += 1;
        }
        cursor.take(length, text);
        match (cursor.next(), quote) {
            ('\'', '\'') if cursor.peek(1) == '\'' => {
                text.push('\'');
                cursor.advance(2);
            }
            ('\\', '"') => escape(cursor, start, text)?,
            ('\'', '"') | ('"' | '\\', '\'') => cursor.take(1, text),
            _ => return Ok(()),
        }
    }
}

fn quoted_spaces(cursor: &mut Cursor, start: Mark, text: &mut String) -> Result<(), Syntax> {
    let mut length = 0;
    while matches!(cursor.peek(length), ' ' | '\t') {
        length += 1;
    }
    match cursor.peek(length) {
        END => Err(Syntax { message: "the quoted text is not closed".to_owned(), mark: start }),
        c if is_break(c) => {
            cursor.advance(length);
            if let Some(line_break) = cursor.line_break() {
                let breaks = quoted_breaks(cursor)?;
                fold(line_break, &breaks, text);
            }
            Ok(())
        }
        _ => {
            cursor.take(length, text);
            Ok(())
        }
    }
}

fn quoted_breaks(cursor: &mut Cursor) -> Result<String, Syntax> {
    let mut breaks = String::new();
    loop {
        if cursor.at_document_marker('-') || cursor.at_document_marker('.') {
            let message = "a document's start or end marker is inside a quoted text".to_owned();
            return Err(Syntax { message, mark: cursor.mark() });
        }
        while matches!(cursor.next(), ' ' | '\t') {
            cursor.advance(1);
        }
        match cursor.line_break() {
            Some(value) => breaks.push(value),
            None => return Ok(breaks),
        }
    }
}

/// Scans an escape sequence of a double quoted scalar.
fn escape(cursor: &mut Cursor, start: Mark, text: &mut String) -> Result<(), Syntax> {
    let mark = cursor.mark();
    cursor.advance(1);
    let digits = match cursor.next() {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        c if is_break(c) => {
            cursor.line_break();
            text.push_str(&quoted_breaks(cursor)?);
            return Ok(());
        }
        END => return Err(Syntax { message: "the quoted text is not closed".to_owned(), mark: start }),
        c => {
            let value = replacement(c)
                .ok_or_else(|| Syntax { message: format!("`\\{c}` is not an escape sequence"), mark })?;
            text.push(value);
            cursor.advance(1);
            return Ok(());
        }
    };
    cursor.advance(1);
    let mut code = 0_u32;
    for offset in 0..digits {
        let digit = cursor.peek(offset).to_digit(16).ok_or_else(|| Syntax {
            message: format!("the escape sequence needs {digits} hexadecimal digits"),
            mark,
        })?;
        // Eight digits fill the 32 bits exactly.
        code = code << 4 | digit;
    }
    let value = char::from_u32(code)
        .ok_or_else(|| Syntax { message: format!("U+{code:X} is not a character"), mark })?;
    text.push(value);
    cursor.advance(digits);
    Ok(())
}

const fn replacement(c: char) -> Option<char> {
    Some(match c {
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        ' ' | '"' | '/' | '\\' => c,
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        _ => return None,
    })
}

/// How to treat the line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Clip,
    Keep,
    Strip,
}

/// Scans a literal or folded scalar below the innermost collection's column.
pub(super) fn block(cursor: &mut Cursor, parent: Option<usize>, folded: bool) -> Result<String, Syntax> {
    cursor.advance(1);
    let (chomping, increment) = block_header(cursor)?;
    let min_indent = parent.map_or(0, |parent| parent + 1);
    let (indent, mut breaks) = match increment {
        None => {
            let (breaks, deepest) = block_indentation(cursor);
            (min_indent.max(deepest), breaks)
        }
        Some(increment) => {
            let indent = min_indent.max(1) + increment - 1;
            (indent, block_breaks(cursor, indent))
        }
    };
    let at_top = min_indent == 0 && increment.is_none();
    let mut text = String::new();
    let mut line_break = None;
    while cursor.column() == indent && cursor.next() != END {
        text.push_str(&breaks);
        let more_indented = matches!(cursor.next(), ' ' | '\t');
        let mut length = 0;
        while !is_break_or_end(cursor.peek(length)) {
            length += 1;
        }
        cursor.take(length, &mut text);
        line_break = cursor.line_break();
        breaks = block_breaks(cursor, indent);
        let at_line_start = cursor.column() == 0;
        if at_top && at_line_start && (cursor.at_document_marker('-') || cursor.at_document_marker('.')) {
            break;
        }
        if cursor.column() != indent || cursor.next() == END {
            break;
        }
        let joins =
            folded && line_break == Some('\n') && !more_indented && !matches!(cursor.next(), ' ' | '\t');
        if !joins {
            text.extend(line_break);
        } else if breaks.is_empty() {
            text.push(' ');
        }
    }
    if chomping != Chomping::Strip {
        text.extend(line_break);
    }
    if chomping == Chomping::Keep {
        text.push_str(&breaks);
    }
    Ok(text)
}

/// Reads the indicators after `|` or `>`, and the rest of the line, which may be a comment.
fn block_header(cursor: &mut Cursor) -> Result<(Chomping, Option<usize>), Syntax> {
    let mut chomping = None;
    let mut increment = None;
    for _ in 0..2 {
        match cursor.next() {
            '+' if chomping.is_none() => chomping = Some(Chomping::Keep),
            '-' if chomping.is_none() => chomping = Some(Chomping::Strip),
            digit @ '1'..='9' if increment.is_none() => increment = digit.to_digit(10),
            _ => break,
        }
        cursor.advance(1);
    }
    let expected =
        |message: &str, cursor: &Cursor| Syntax { message: message.to_owned(), mark: cursor.mark() };
    if cursor.next() != ' ' && !is_break_or_end(cursor.next()) {
        return Err(expected("expected `+`, `-`, a digit from 1 to 9 or the end of the line", cursor));
    }
    cursor.spaces();
    if cursor.next() == '#' {
        while !is_break_or_end(cursor.next()) {
            cursor.advance(1);
        }
    }
    if !is_break_or_end(cursor.next()) {
        return Err(expected("expected a comment or the end of the line", cursor));
    }
    cursor.line_break();
    Ok((chomping.unwrap_or(Chomping::Clip), increment.and_then(|digit| usize::try_from(digit).ok())))
}

/// Skips the empty lines before the first line of a block scalar, and finds the scalar's column.
fn block_indentation(cursor: &mut Cursor) -> (String, usize) {
    let mut breaks = String::new();
    let mut deepest = 0;
    loop {
        if cursor.next() == ' ' {
            cursor.advance(1);
            deepest = deepest.max(cursor.column());
        } else if let Some(value) = cursor.line_break() {
            breaks.push(value);
        } else {
            return (breaks, deepest);
        }
    }
}

/// Skips empty lines, and the indentation of the line after them.
fn block_breaks(cursor: &mut Cursor, indent: usize) -> String {
    let mut breaks = String::new();
    loop {
        while cursor.column() < indent && cursor.next() == ' ' {
            cursor.advance(1);
        }
        match cursor.line_break() {
            Some(value) => breaks.push(value),
            None => return breaks,
        }
    }
}
