//! Finds the start and the end of the frontmatter.
//!
//! It starts with `---` at the start of the file, and ends at the next line that begins with `---`. The reference
//! implementation ends it at the next `---` anywhere, even within a description. That is a known defect, and our
//! only deviation.

use super::document::{MAX_FRONTMATTER_BYTES, Mode};
use crate::diagnostic::{Diagnostic, Position, RuleId, Severity};

const FENCE: &[u8] = b"---";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A `SKILL.md`, split at its fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence<'a> {
    /// The line of the first fence, counted from 1.
    pub(crate) line: u32,
    /// The text between the fences, from right after the first to the last line end.
    pub(crate) yaml: &'a str,
    /// Everything after the three hyphens of the second fence.
    pub(crate) body: &'a str,
}

/// The result of scanning the start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    /// It does not begin with `---`.
    Missing,
    /// It begins, but does not end within these bytes.
    Open,
    /// The text between the fences, as byte offsets: from `start` to before `end`.
    Closed { start: usize, end: usize },
}

/// Searches the fences in the first bytes of a file, with any line ends.
pub(crate) fn scan(bytes: &[u8], mode: Mode) -> Scan {
    let first = match mode {
        Mode::Strict => 0,
        Mode::Lenient => prologue(bytes),
    };
    let rest = &bytes[first..];
    if !rest.starts_with(FENCE) {
        return if FENCE.starts_with(rest) { Scan::Open } else { Scan::Missing };
    }
    let start = first + FENCE.len();
    let mut from = start;
    while let Some(offset) = bytes[from..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        let line = from + offset + 1;
        if bytes[line..].starts_with(FENCE) {
            return Scan::Closed { start, end: line };
        }
        from = line;
    }
    Scan::Open
}

/// The number of bytes that a lenient reader skips before the first fence: a byte order mark and blank lines.
fn prologue(bytes: &[u8]) -> usize {
    let mark = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let blank = bytes[mark..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let on_a_new_line = blank == 0 || matches!(bytes[mark + blank - 1], b'\n' | b'\r');
    if on_a_new_line { mark + blank } else { mark }
}

/// Splits a file at its fences. `content` need only contain the frontmatter. Line ends are `\n`. Text that a
/// lenient reader skips is a finding.
pub(crate) fn split<'a>(
    content: &'a str,
    mode: Mode,
    findings: &mut Vec<Diagnostic>,
) -> Result<Fence<'a>, Diagnostic> {
    let bounded = &content.as_bytes()[..content.len().min(MAX_FRONTMATTER_BYTES)];
    match scan(bounded, mode) {
        Scan::Closed { start, end } => {
            let skipped = &content[..start - FENCE.len()];
            if !skipped.is_empty() {
                let message = "skipped a byte order mark or blank lines before the frontmatter";
                findings.push(finding(RuleId::FrontmatterRepaired, Severity::Warning, message));
            }
            let line = 1 + u32::try_from(skipped.matches('\n').count()).unwrap_or(u32::MAX - 1);
            Ok(Fence { line, yaml: &content[start..end], body: &content[end + FENCE.len()..] })
        }
        Scan::Open if content.len() > MAX_FRONTMATTER_BYTES => {
            let message = format!("SKILL.md frontmatter is larger than {MAX_FRONTMATTER_BYTES} bytes");
            Err(finding(RuleId::FrontmatterTooLarge, Severity::Error, &message))
        }
        Scan::Open if content.contains("---") => {
            let message = "SKILL.md frontmatter not properly closed with ---";
            Err(finding(RuleId::FrontmatterUnclosed, Severity::Error, message))
        }
        Scan::Open | Scan::Missing => {
            let message = "SKILL.md must start with YAML frontmatter (---)";
            Err(finding(RuleId::FrontmatterMissing, Severity::Error, message))
        }
    }
}

fn finding(rule: RuleId, severity: Severity, message: &str) -> Diagnostic {
    Diagnostic::new(rule, severity, message, "").at(Position { line: 1, column: 1 })
}
