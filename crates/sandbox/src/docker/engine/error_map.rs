//! Maps errors of an engine to sandbox errors, with hints: no engine, no image, or a container that cannot be created.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bollard::errors::Error;

use super::address::EngineAddress;
use crate::error::{SandboxError, SandboxErrorKind};

/// The maximum length of an engine's message in an error, in bytes.
const MAX_MESSAGE: usize = 4096;

/// The error when no engine can be used.
pub(crate) fn no_engine(reason: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(
        SandboxErrorKind::EngineUnavailable,
        format!("no container engine can be used: {reason}"),
    )
}

/// The error for an engine that does not answer in time.
pub(crate) fn timed_out(address: &EngineAddress, doing: &str, timeout: Duration) -> SandboxError {
    no_engine(format!(
        "the one at `{address}` did not {doing} within {} s; it may hang or have too much to do: look at its log, \
         and restart it",
        timeout.as_secs()
    ))
}

/// The error for a failure of the engine while `doing` something.
pub(crate) fn explained(address: &EngineAddress, doing: &str, error: &Error) -> SandboxError {
    match error {
        Error::DockerResponseServerError { status_code, message } => refused(doing, *status_code, message),
        Error::SocketNotFoundError(_) => missing_dir(address),
        Error::RequestTimeoutError => no_engine(format!("the one at `{address}` is too slow to {doing}")),
        Error::JsonDataError { .. }
        | Error::JsonSerdeError { .. }
        | Error::APIVersionParseError {}
        | Error::StrParseError { .. } => malformed_answer(address, error),
        error if is_too_long(error) => no_engine(format!(
            "what answers at `{address}` when it is to {doing} does not end, or says more than any engine does"
        )),
        _ => match io_cause(error) {
            Some(io::ErrorKind::NotFound) => missing_dir(address),
            Some(io::ErrorKind::ConnectionRefused) if address.is_local() => {
                no_engine(format!("nothing listens at `{address}` any more; start Docker or Podman"))
            }
            Some(io::ErrorKind::ConnectionRefused) => no_engine(format!(
                "nothing listens at `{address}`; start the tunnel to the engine, or the engine"
            )),
            Some(io::ErrorKind::PermissionDenied) => forbidden(address),
            Some(_) => no_engine(format!(
                "the connection to `{address}` broke while it was to {doing}: {}",
                full_message(error)
            )),
            None => malformed_answer(address, error),
        },
    }
}

fn missing_dir(address: &EngineAddress) -> SandboxError {
    no_engine(format!(
        "nothing is at `{address}`; start Docker or Podman, or say by DOCKER_HOST where the engine listens"
    ))
}

fn forbidden(address: &EngineAddress) -> SandboxError {
    no_engine(format!(
        "this user may not use `{address}`: add the user to the socket's group (`usermod -aG docker USER`, which makes \
         the user as mighty as root), or run a rootless engine (`systemctl --user start podman.socket`)"
    ))
}

/// The error for a response that is not from a container engine.
pub(crate) fn malformed_answer(address: &EngineAddress, error: &Error) -> SandboxError {
    let message = full_message(error);
    let message = message.get(..message.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default();
    no_engine(format!("what answers at `{address}` does not speak as an engine does ({})", message.trim()))
}

/// The error for a request that the engine refuses.
fn refused(doing: &str, status: u16, message: &str) -> SandboxError {
    let message = message.trim();
    let message = message.get(..message.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default();
    let lower = message.to_ascii_lowercase();
    let (kind, hint) = if lower.contains("no space left on device") || lower.contains("disk quota exceeded") {
        (SandboxErrorKind::NoSpace, "; make room where the engine keeps its data (`docker system df`)")
    } else if lower.contains("unknown runtime") || lower.contains("invalid runtime name") {
        (SandboxErrorKind::Unavailable, "; `docker info` lists the runtimes that there are")
    } else if lower.contains("exec format error") {
        let hint = "; the guest's program is for another kind of processor than the engine's: build with \
                    `CONJURE_GUEST` naming one that fits";
        (SandboxErrorKind::Unavailable, hint)
    } else if lower.contains("permission denied") && lower.contains("exec") {
        let hint = "; the directory for the host's data may lie on a file system that runs no programs (`noexec`): \
                    choose another one";
        (SandboxErrorKind::Unavailable, hint)
    } else if status >= 500 && lower.contains("resource temporarily unavailable") {
        (
            SandboxErrorKind::Exhausted,
            "; the machine has no more processes, memory or files for another container",
        )
    } else {
        (SandboxErrorKind::Unavailable, "")
    };
    SandboxError::new(kind, format!("the engine does not {doing}: {message}{hint}"))
}

/// The error for a missing image.
pub(crate) fn no_image(image: &str) -> SandboxError {
    SandboxError::new(
        SandboxErrorKind::ImageNotFound,
        format!(
            "the engine has no image `{image}`: `conjure image build` makes the usual one, `docker pull {image}` gets \
             one that is published"
        ),
    )
}

/// The possible effect of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No effect: the engine refused it, or was not reached.
    None,
    /// Unknown: the engine did not answer, and may still execute it.
    Unknown,
}

/// The effect of a request that failed with this error.
pub(crate) fn effect(error: &Error) -> Effect {
    let unreached =
        [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused, io::ErrorKind::PermissionDenied];
    match error {
        Error::DockerResponseServerError { .. } | Error::SocketNotFoundError(_) => Effect::None,
        error if io_cause(error).is_some_and(|io_cause| unreached.contains(&io_cause)) => Effect::None,
        _ => Effect::Unknown,
    }
}

/// Whether the engine reports that something does not exist.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

/// Whether another operation on the container is in progress, or the name is taken.
pub(crate) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 409, .. })
}

/// Whether a container disappeared during the request.
pub(crate) fn vanished_meanwhile(error: &Error) -> bool {
    let Error::DockerResponseServerError { status_code: 500, message } = error else { return false };
    ["container not known", "no such container"].iter().any(|text| message.contains(text))
}

/// Whether an answer exceeded the size limit.
fn is_too_long(error: &Error) -> bool {
    let is_it = |error: &io::Error| error.kind() == io::ErrorKind::FileTooLarge;
    if let Error::IOError { err } = error
        && is_it(err)
    {
        return true;
    }
    let mut next = error.source();
    while let Some(source) = next {
        if source.downcast_ref().is_some_and(is_it) {
            return true;
        }
        next = source.source();
    }
    false
}

/// The I/O error that caused it, if there is one.
fn io_cause(error: &Error) -> Option<io::ErrorKind> {
    if let Error::IOError { err } = error {
        return Some(err.kind());
    }
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(io) = source.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        next = source.source();
    }
    None
}

/// The message of the error, followed by its causes.
fn full_message(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status_code: u16, message: &str) -> SandboxError {
        let error = Error::DockerResponseServerError { status_code, message: message.to_owned() };
        explained(&EngineAddress::Unix("/run/engine".into()), "make a container", &error)
    }

    #[test]
    fn what_an_engine_refuses_is_told_with_what_helps() {
        for (message, kind, hint) in [
            ("write /x: no space left on device", SandboxErrorKind::NoSpace, "make room"),
            ("unknown or invalid runtime name: runsc", SandboxErrorKind::Unavailable, "docker info"),
            ("Unknown runtime specified runsc", SandboxErrorKind::Unavailable, "docker info"),
            (
                "OCI runtime create failed: exec: \"/.conjure/conjure-guest\": permission denied: unknown",
                SandboxErrorKind::Unavailable,
                "noexec",
            ),
            (
                "exec /.conjure/conjure-guest: exec format error",
                SandboxErrorKind::Unavailable,
                "CONJURE_GUEST",
            ),
            ("something new", SandboxErrorKind::Unavailable, "does not make a container: something new"),
        ] {
            let error = refusal(500, message);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
