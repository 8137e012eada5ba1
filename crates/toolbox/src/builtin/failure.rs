//! What the model is told when a sandbox says no: what failed, why, and what to do about it.

use conjure_sandbox::{SandboxError, SandboxErrorKind};

use crate::tool::{ToolOutcome, ToolStatus};

/// The outcome of a failed operation; `action` fits "failed to …".
pub(super) fn failure(action: &str, error: &SandboxError) -> ToolOutcome {
    let status = match error.kind() {
        SandboxErrorKind::TimedOut => ToolStatus::TimedOut,
        SandboxErrorKind::Cancelled => ToolStatus::Cancelled,
        _ => ToolStatus::Failed,
    };
    let text = match hint(error.kind()) {
        Some(hint) => format!("failed to {action}: {error}\nhint: {hint}"),
        None => format!("failed to {action}: {error}"),
    };
    ToolOutcome::with_status(status, text)
}

const fn hint(kind: SandboxErrorKind) -> Option<&'static str> {
    Some(match kind {
        SandboxErrorKind::NotFound => "check the path by viewing the folder that should hold it",
        SandboxErrorKind::PermissionDenied => "work in the workspace, where files can be written",
        SandboxErrorKind::PathNotAllowed => {
            "use paths in the workspace; the folders of skills can be read but not changed"
        }
        SandboxErrorKind::WrongFileType => "view the path's folder to see what is there",
        SandboxErrorKind::TooLarge => "work on a part of it with `bash_tool`",
        SandboxErrorKind::NotText => "inspect and change binary files with `bash_tool`",
        SandboxErrorKind::NoMatch => {
            "view the file and copy the text exactly, with its whitespace and without line numbers"
        }
        SandboxErrorKind::NotUnique => {
            "add lines before or after to `old_str` until it occurs once, or edit with `bash_tool`"
        }
        SandboxErrorKind::NoSpace => "delete files that are no longer needed",
        SandboxErrorKind::Exhausted => "end what runs in the background, or try again with less at once",
        SandboxErrorKind::Lost => {
            "the sandbox ended while this ran, so it may or may not have taken effect: check before trying again"
        }
        _ => return None,
    })
}
