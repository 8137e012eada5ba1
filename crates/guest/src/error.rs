//! Errors for the host: a class, and a message that names what failed and how to mend it.

use rustix::io::Errno;

use conjure_guest::protocol::{ErrorCode, GuestError, Reply};

/// The result of an operation as the payload of its last frame.
pub(crate) fn encode(result: &Result<Reply, GuestError>) -> Vec<u8> {
    serde_json::to_vec(result)
        .unwrap_or_else(|_| br#"{"Err":{"code":"io","message":"the reply cannot be written down"}}"#.to_vec())
}

/// An error of this class.
pub(crate) fn error(code: ErrorCode, message: impl Into<String>) -> GuestError {
    GuestError { code, message: message.into() }
}

/// An error of no better class.
pub(crate) fn io(message: impl Into<String>) -> GuestError {
    error(ErrorCode::Io, message)
}

/// What the system said about the file or folder that was given as `path`.
pub(crate) fn of_file(errno: Errno, path: &str, doing: &str) -> GuestError {
    let (code, reason) = match errno {
        Errno::NOENT => (ErrorCode::NotFound, "it does not exist".to_owned()),
        Errno::ACCESS | Errno::PERM => (ErrorCode::PermissionDenied, "permission denied".to_owned()),
        Errno::ROFS => (ErrorCode::PermissionDenied, "it lies on a read-only file system".to_owned()),
        Errno::ISDIR => (ErrorCode::IsDirectory, "it is a folder; name a file in it".to_owned()),
        Errno::NOTDIR => (ErrorCode::NotDirectory, "it, or a part of it, is not a folder".to_owned()),
        Errno::NXIO | Errno::NODEV => {
            (ErrorCode::NotRegular, "it is a device, pipe or socket, not a file".to_owned())
        }
        Errno::NOSPC | Errno::DQUOT => {
            (ErrorCode::NoSpace, "the disk or quota is full; remove what is not needed".to_owned())
        }
        Errno::FBIG => (ErrorCode::TooLarge, "a file here may not become so large".to_owned()),
        Errno::NAMETOOLONG => (ErrorCode::BadRequest, "a name in it is too long".to_owned()),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            (ErrorCode::Exhausted, format!("the system has no more of what it takes ({errno}); try again"))
        }
        Errno::XDEV => (
            ErrorCode::PathNotAllowed,
            "it leads out of the folder it lies in, by `..` or by a symbolic link that is absolute or climbs \
             out; name the file itself, within the folders that may be used"
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
