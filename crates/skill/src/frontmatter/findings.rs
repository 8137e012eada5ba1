//! Collects findings about the text between the fences.

use crate::diagnostic::{Diagnostic, Position, RuleId, Severity};
use crate::yaml::Mark;

/// Adds findings about positions between the fences.
pub(super) struct Findings<'a> {
    /// The line of the first fence.
    pub(super) fence_line: u32,
    pub(super) list: &'a mut Vec<Diagnostic>,
}

impl Findings<'_> {
    pub(super) fn add(&mut self, rule: RuleId, severity: Severity, message: impl Into<String>, mark: Mark) {
        self.list.push(Diagnostic::new(rule, severity, message, "").at(position(mark, self.fence_line)));
    }
}

/// Converts a position between the fences to one in the file. The text begins after the `---` of the first fence's
/// line.
pub(crate) fn position(mark: Mark, fence_line: u32) -> Position {
    let shift = if mark.line == 1 { 3 } else { 0 };
    Position { line: mark.line.saturating_add(fence_line - 1), column: mark.column.saturating_add(shift) }
}
