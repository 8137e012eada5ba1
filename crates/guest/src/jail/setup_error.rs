//! Errors of the set-up: the step, the action, and the reason.

use rustix::io::Errno;

use conjure_guest::protocol::{SetupError, SetupStep};

/// The result of a part of the set-up.
pub(super) type SetupResult<T> = Result<T, SetupError>;

/// Converts a system error. `doing` fits "cannot …".
pub(super) fn setup_error(step: SetupStep, doing: impl Into<String>) -> impl FnOnce(Errno) -> SetupError {
    let doing = doing.into();
    move |errno| SetupError { step, errno: errno.raw_os_error(), doing, reason: errno.to_string() }
}

/// Creates an error that the system did not report.
pub(super) fn with_reason(
    step: SetupStep,
    doing: impl Into<String>,
    reason: impl Into<String>,
) -> SetupError {
    SetupError { step, errno: 0, doing: doing.into(), reason: reason.into() }
}

/// Converts an I/O error.
pub(super) fn from_io_error(
    step: SetupStep,
    doing: impl Into<String>,
) -> impl FnOnce(std::io::Error) -> SetupError {
    let doing = doing.into();
    move |error| SetupError {
        step,
        errno: error.raw_os_error().unwrap_or(0),
        doing,
        reason: error.to_string(),
    }
}
