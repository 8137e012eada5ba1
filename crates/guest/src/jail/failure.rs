//! Failures of the set-up, for the host: the step, what was to be done, and what the system said.

use rustix::io::Errno;

use conjure_guest::protocol::{SetupFailure, SetupStep};

/// The result of a part of the set-up.
pub(super) type Done<T> = Result<T, SetupFailure>;

/// Makes a failure of what the system said. `doing` fits "cannot …".
pub(super) fn at(step: SetupStep, doing: impl Into<String>) -> impl FnOnce(Errno) -> SetupFailure {
    let doing = doing.into();
    move |errno| SetupFailure { step, errno: errno.raw_os_error(), doing, reason: errno.to_string() }
}

/// A failure that is not the system's.
pub(super) fn because(step: SetupStep, doing: impl Into<String>, reason: impl Into<String>) -> SetupFailure {
    SetupFailure { step, errno: 0, doing: doing.into(), reason: reason.into() }
}

/// Makes a failure of what the standard library said.
pub(super) fn of_io(
    step: SetupStep,
    doing: impl Into<String>,
) -> impl FnOnce(std::io::Error) -> SetupFailure {
    let doing = doing.into();
    move |error| SetupFailure {
        step,
        errno: error.raw_os_error().unwrap_or(0),
        doing,
        reason: error.to_string(),
    }
}
