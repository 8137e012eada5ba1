//! Converts sandbox errors to tool results. Sandbox errors name what failed and how to mend it; the tools add their own hints.

use conjure_sandbox::{SandboxError, SandboxErrorKind};

use crate::tool::{ToolOutput, ToolStatus};

/// The result of a failed operation. `action` fits "failed to …" and is added if the error does not name `subject`.
pub(crate) fn sandbox_error_result(action: &str, subject: &str, error: &SandboxError) -> ToolOutput {
    let (status, mut text) = status_and_text(action, subject, error);
    if let Some(hint) = hint(error.kind()) {
        text = format!("{text}\nhint: {hint}");
    }
    ToolOutput::with_status(status, text)
}

/// The status and the text of a failed operation, without a hint.
pub(crate) fn status_and_text(action: &str, subject: &str, error: &SandboxError) -> (ToolStatus, String) {
    let status = match error.kind() {
        SandboxErrorKind::TimedOut => ToolStatus::TimedOut,
        SandboxErrorKind::Cancelled => ToolStatus::Cancelled,
        SandboxErrorKind::Lost => ToolStatus::Lost,
        _ => ToolStatus::Failed,
    };
    let mut text = error.to_string();
    if !text.contains(subject) {
        text = format!("failed to {action} `{subject}`: {text}");
    }
    (status, text)
}

const fn hint(kind: SandboxErrorKind) -> Option<&'static str> {
    Some(match kind {
        SandboxErrorKind::NotFound => "view the directory that should hold it",
        SandboxErrorKind::TooLarge => "work on a part of it with `bash_tool`",
        SandboxErrorKind::NotText => "inspect and change files that are not text with `bash_tool`",
        SandboxErrorKind::NoMatch => {
            "`old_str` must be copied exactly; the line numbers that `view` shows are not part of the file"
        }
        SandboxErrorKind::NotUnique => "lengthen `old_str` by the lines before or after it",
        SandboxErrorKind::Lost => {
            "the sandbox ended while this ran, so it may or may not have taken effect: check before trying again"
        }
        _ => return None,
    })
}
