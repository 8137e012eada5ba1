//! The errors of calls that get no running sandbox.

use conjure_sandbox::{SandboxError, SandboxErrorKind};

use crate::supervision::{Exit, StartError, StartFailure};

/// The error of a call whose sandbox did not resume.
pub(super) fn resume_error(error: &SandboxError) -> SandboxError {
    let kind = match error.kind() {
        kind @ (SandboxErrorKind::TimedOut | SandboxErrorKind::Cancelled) => kind,
        // Other kinds would look like errors about the call's own file or command.
        _ => SandboxErrorKind::Unavailable,
    };
    SandboxError::new(
        kind,
        format!("the sandbox was paused, and could not be resumed: {error}; nothing was done"),
    )
}

/// The error of a call for which no sandbox could be started, with the text of the failed start.
pub(super) fn start_error(error: &StartError) -> SandboxError {
    let exit = match error {
        StartError::Failed(exit) => Some(exit),
        StartError::Quarantined { exit, .. } => exit.as_ref(),
        _ => None,
    };
    let unavailable = |reason| SandboxError::new(SandboxErrorKind::Unavailable, reason);
    let error = match exit {
        Some(Exit::StartFailed(StartFailure::Failed(cause))) => {
            let cause = cause.error();
            cause.downcast_ref::<SandboxError>().cloned().unwrap_or_else(|| unavailable(cause.to_string()))
        }
        Some(Exit::StartFailed(failure)) => unavailable(failure.to_string()),
        Some(exit) => unavailable(format!("it ends each time; the last time it {exit}")),
        None => unavailable(error.to_string()),
    };
    let reported = format!("the sandbox could not be started: {error}");
    match error.kind() {
        SandboxErrorKind::EngineUnavailable
        | SandboxErrorKind::ImageNotFound
        | SandboxErrorKind::NotEnforced
        | SandboxErrorKind::NoSpace
        | SandboxErrorKind::Exhausted
        | SandboxErrorKind::Overloaded => error.with_message(reported),
        // Other kinds would look like errors about the call's own file or command.
        _ => unavailable(reported),
    }
}
