//! Error results for artifacts that cannot be resolved or installed.

use conjure_artifact::{ArtifactError, ArtifactErrorKind};
use conjure_base::{Clock, Deadline};
use conjure_sandbox::{SandboxError, SandboxErrorKind};

use crate::tool::{ToolOutput, ToolStatus};

/// The result of a call whose input `input` could not be resolved.
pub(super) fn unresolved_result(
    input: &str,
    error: ArtifactError,
    clock: &dyn Clock,
    deadline: Deadline,
) -> ToolOutput {
    let status = match error.kind() {
        ArtifactErrorKind::Cancelled => ToolStatus::Cancelled,
        // A timeout of the fetch alone does not mean that the call has timed out.
        ArtifactErrorKind::TimedOut if clock.remaining(deadline).is_zero() => ToolStatus::TimedOut,
        _ => ToolStatus::Failed,
    };
    ToolOutput::with_status(status, error.for_input(input).to_string())
}

/// The result of a call whose input could not be installed in the sandbox.
pub(super) fn unavailable_result(input: &str, error: &SandboxError) -> ToolOutput {
    let reason = match error.kind() {
        SandboxErrorKind::Unsupported => {
            "this sandbox takes no artifacts while it runs; do without it, or tell the user".to_owned()
        }
        _ => error.to_string(),
    };
    ToolOutput::with_status(status_of(error), format!("the input `{input}` could not be resolved: {reason}"))
}

/// The status of a call that failed with a sandbox error.
pub(super) fn status_of(error: &SandboxError) -> ToolStatus {
    match error.kind() {
        SandboxErrorKind::TimedOut => ToolStatus::TimedOut,
        SandboxErrorKind::Cancelled => ToolStatus::Cancelled,
        SandboxErrorKind::Lost => ToolStatus::Lost,
        _ => ToolStatus::Failed,
    }
}

/// Whether the error concerns only one artifact's content, not the sandbox or the call.
pub(super) const fn is_content_error(error: &SandboxError) -> bool {
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
