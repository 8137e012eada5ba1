//! Converts sandbox errors to results of the toolset's tools, with hints in the words of these tools.

use conjure_sandbox::{SandboxError, SandboxErrorKind};

use crate::builtin::error_text::status_and_text;
use crate::tool::ToolOutput;

/// The result of a failed operation. `action` fits "failed to …" and is added if the error does not name `subject`.
pub(super) fn toolset_error(action: &str, subject: &str, error: &SandboxError) -> ToolOutput {
    let (status, text) = status_and_text(action, subject, error);
    let text = match hint(error.kind()) {
        Some(hint) => format!("{text}\nhint: {hint}"),
        None => text,
    };
    ToolOutput::with_status(status, text)
}

const fn hint(kind: SandboxErrorKind) -> Option<&'static str> {
    Some(match kind {
        SandboxErrorKind::NotFound => "find its path with `glob`",
        SandboxErrorKind::TooLarge => "work on a part of it with `bash`",
        SandboxErrorKind::NotText => "inspect and change files that are not text with `bash`",
        SandboxErrorKind::NoMatch => {
            "`old_string` must be copied exactly; the line numbers that `read` shows are not part of the file"
        }
        SandboxErrorKind::NotUnique => {
            "lengthen `old_string` by the lines before or after it, or set `replace_all` to change every occurrence"
        }
        SandboxErrorKind::Lost => {
            "the sandbox ended while this ran, so it may or may not have taken effect: check before trying again"
        }
        _ => return None,
    })
}
