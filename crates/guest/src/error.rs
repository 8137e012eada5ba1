//! Errors: those of operations, with a code and a message for the host, and those that end the guest.

use std::io::Write as _;

use rustix::io::Errno;

use conjure_guest::protocol::{ErrorCode, FrameError, GuestError, PROTOCOL_VERSION, Reply};

/// Encodes the result of an operation as the payload of its last frame.
pub(crate) fn encode(result: &Result<Reply, GuestError>) -> Vec<u8> {
    serde_json::to_vec(result)
        .unwrap_or_else(|_| br#"{"Err":{"code":"io","message":"the reply cannot be encoded"}}"#.to_vec())
}

/// Creates an error with this code.
pub(crate) fn error(code: ErrorCode, message: impl Into<String>) -> GuestError {
    GuestError { code, message: message.into() }
}

/// Creates an error with the code [`ErrorCode::Io`].
pub(crate) fn io(message: impl Into<String>) -> GuestError {
    error(ErrorCode::Io, message)
}

/// Converts a system error about the file or directory at `path`. `doing` fits "cannot …".
pub(crate) fn file_error(errno: Errno, path: &str, doing: &str) -> GuestError {
    let (code, reason) = match errno {
        Errno::NOENT => (ErrorCode::NotFound, "it does not exist".to_owned()),
        Errno::ACCESS | Errno::PERM => (ErrorCode::PermissionDenied, "permission denied".to_owned()),
        Errno::ROFS => (ErrorCode::PermissionDenied, "it lies on a read-only file system".to_owned()),
        Errno::ISDIR => (ErrorCode::IsDirectory, "it is a directory; name a file in it".to_owned()),
        Errno::NOTDIR => (ErrorCode::NotDirectory, "it, or a part of it, is not a directory".to_owned()),
        Errno::NXIO | Errno::NODEV => {
            (ErrorCode::NotRegular, "it is a device, pipe or socket, not a file".to_owned())
        }
        Errno::NOSPC | Errno::DQUOT => {
            (ErrorCode::NoSpace, "the disk or quota is full; remove what is not needed".to_owned())
        }
        Errno::FBIG => (ErrorCode::TooLarge, "the file would be larger than the limit".to_owned()),
        Errno::NAMETOOLONG => (ErrorCode::BadRequest, "a name in it is too long".to_owned()),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            (ErrorCode::Exhausted, format!("the system is out of resources ({errno}); try again"))
        }
        Errno::XDEV => (
            ErrorCode::PathNotAllowed,
            "it leads out of the directory it lies in, by `..` or by a symbolic link that is absolute or climbs \
             out; name the file itself, within the directories that may be used"
                .to_owned(),
        ),
        Errno::LOOP => (
            ErrorCode::PathNotAllowed,
            "its symbolic links form a loop or go through the system's own; name the file itself".to_owned(),
        ),
        Errno::NOSYS => (ErrorCode::Io, "the kernel has no `openat2`; Linux 5.6 or later is needed".to_owned()),
        other => (ErrorCode::Io, other.to_string()),
    };
    error(code, format!("cannot {doing} `{path}`: {reason}"))
}

/// The host sent data that it has no credit for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CreditError {
    #[error("more data than credit was granted for")]
    BeyondCredit,
    #[error("data after the end of data")]
    AfterEnd,
}

/// An error that ends the guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FatalError {
    #[error("the host broke the protocol: {0}")]
    Frame(#[from] FrameError),
    #[error("the host broke the protocol on channel {channel}: {error}")]
    Data { channel: u32, error: CreditError },
    #[error("the host broke the protocol: {0}")]
    Protocol(String),
    #[error(
        "the host speaks version {0} of the protocol, this guest {PROTOCOL_VERSION}; they must be built together"
    )]
    Version(u32),
    #[error("expected no argument, `jail`, `own`, or `connect` with a path")]
    Arguments,
    #[error("cannot listen on port {port} of 127.0.0.1, the proxy port of commands: {errno}")]
    Proxy { port: u16, errno: Errno },
    #[error("cannot {doing}: {errno}")]
    System { doing: &'static str, errno: Errno },
}

/// Makes a [`FatalError`] of a system error. `doing` fits "cannot …".
pub(crate) fn system_error(doing: &'static str) -> impl Fn(Errno) -> FatalError {
    move |errno| FatalError::System { doing, errno }
}

/// Reports the error on standard error, and returns the exit code.
pub(crate) fn exit_code(ended: Result<(), FatalError>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(error) => {
            // The host may have closed the pipe.
            let _ = writeln!(std::io::stderr(), "conjure-guest: {error}");
            2
        }
    }
}
