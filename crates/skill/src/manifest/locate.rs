//! Finds the position of a field in a YAML text.
//!
//! The YAML library provides no positions. Manifests use block style, so indentation locates a field. In other
//! styles, the position is that of the enclosing field.

use std::fmt::Write as _;

use crate::yaml::Mark;

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Item(usize),
}

/// Formats a path for messages: `inputs.required[0].schema`.
pub(super) fn display_path(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        let _ = match step {
            PathStep::Key(key) if text.is_empty() => write!(text, "{key}"),
            PathStep::Key(key) => write!(text, ".{key}"),
            PathStep::Item(index) => write!(text, "[{index}]"),
        };
    }
    text
}

/// A line that is not empty.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    number: u32,
    indent: usize,
    text: &'a str,
}

/// Returns the position of a path, as deep as it can be followed.
pub(super) fn locate(text: &str, path: &[PathStep]) -> Mark {
    let mut mark = Mark { line: 1, column: 1 };
    let mut lines: Vec<Line<'_>> = (1..).zip(text.split('\n')).filter_map(line).collect();
    for step in path {
        let found = match step {
            PathStep::Key(key) => entry(&lines, key),
            PathStep::Item(index) => item(&lines, *index),
        };
        let Some((at, inner)) = found else { break };
        let column = u32::try_from(at.indent).unwrap_or(u32::MAX).saturating_add(1);
        mark = Mark { line: at.number, column };
        lines = inner;
    }
    mark
}

fn line((number, text): (u32, &str)) -> Option<Line<'_>> {
    let content = text.trim_start_matches(' ');
    let has_content = !content.trim().is_empty() && !content.starts_with('#');
    has_content.then(|| Line { number, indent: text.len() - content.len(), text: content })
}

/// Finds the line of a key, and the lines of its value.
fn entry<'a>(lines: &[Line<'a>], key: &str) -> Option<(Line<'a>, Vec<Line<'a>>)> {
    let indent = lines.first()?.indent;
    let start = lines.iter().position(|line| line.indent == indent && is_key(line.text, key))?;
    let below = &lines[start + 1..];
    // The items of a list may have the same indentation as the key.
    let belongs = |line: &Line<'_>| line.indent > indent || (line.indent == indent && is_item(line.text));
    let count = below.iter().take_while(|line| belongs(line)).count();
    Some((lines[start], below[..count].to_vec()))
}

fn is_key(text: &str, key: &str) -> bool {
    let quoted = |quote| text.strip_prefix(quote)?.strip_prefix(key)?.strip_prefix(quote);
    let rest = text.strip_prefix(key).or_else(|| quoted('"')).or_else(|| quoted('\''));
    let after = rest.and_then(|rest| rest.trim_start().strip_prefix(':'));
    after.is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '\r']))
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// Finds the line of a list item, and the lines of its value, the first without the dash.
fn item<'a>(lines: &[Line<'a>], index: usize) -> Option<(Line<'a>, Vec<Line<'a>>)> {
    let indent = lines.first()?.indent;
    let mut starts = (0..lines.len()).filter(|at| lines[*at].indent == indent && is_item(lines[*at].text));
    let start = starts.nth(index)?;
    let end = starts.next().unwrap_or(lines.len());
    let first = lines[start];
    let text = first.text[1..].trim_start_matches(' ');
    let inner = Line { indent: indent + first.text.len() - text.len(), text, ..first };
    let mut value = if text.is_empty() { Vec::new() } else { vec![inner] };
    value.extend_from_slice(&lines[start + 1..end]);
    let at = if text.is_empty() { first } else { inner };
    Some((at, value))
}
