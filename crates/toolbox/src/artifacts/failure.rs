//! What the model is told of a reference that leads nowhere.

use conjure_artifact::{ArtifactError, ArtifactErrorKind};
use conjure_base::{Clock, Deadline};
use conjure_sandbox::{SandboxError, SandboxErrorKind};

use crate::tool::{ToolOutcome, ToolStatus};

/// The outcome of a call whose input `input` could not be resolved.
pub(super) fn unresolved(
    input: &str,
    error: ArtifactError,
    clock: &dyn Clock,
    deadline: Deadline,
) -> ToolOutcome {
    let status = match error.kind() {
        ArtifactErrorKind::Cancelled => ToolStatus::Cancelled,
        // Its own limit may have been reached instead.
        ArtifactErrorKind::TimedOut if clock.remaining(deadline).is_zero() => ToolStatus::TimedOut,
        _ => ToolStatus::Failed,
    };
    ToolOutcome::with_status(status, error.of_input(input).to_string())
}

/// The outcome of a call for whose input the sandbox did not take what it stands for.
pub(super) fn not_given(input: &str, error: &SandboxError) -> ToolOutcome {
    let reason = match error.kind() {
        SandboxErrorKind::Unsupported => {
            "this sandbox takes no artifacts while it runs; do without it, or tell the user".to_owned()
        }
        _ => error.to_string(),
    };
    ToolOutcome::with_status(status_of(error), format!("the input `{input}` could not be resolved: {reason}"))
}

/// How a call ends that a sandbox failed.
pub(super) fn status_of(error: &SandboxError) -> ToolStatus {
    match error.kind() {
        SandboxErrorKind::TimedOut => ToolStatus::TimedOut,
        SandboxErrorKind::Cancelled => ToolStatus::Cancelled,
        SandboxErrorKind::Lost => ToolStatus::Lost,
        _ => ToolStatus::Failed,
    }
}

/// Whether this is about one content, and others may be given; else it is about the sandbox, or about the call.
pub(super) const fn is_of_content(error: &SandboxError) -> bool {
    matches!(
        error.kind(),
        SandboxErrorKind::NotFound
            | SandboxErrorKind::PermissionDenied
            | SandboxErrorKind::Exists
            | SandboxErrorKind::TooLarge
            | SandboxErrorKind::NoSpace
            | SandboxErrorKind::BadRequest
            | SandboxErrorKind::Unsupported
            | SandboxErrorKind::Io
    )
}
