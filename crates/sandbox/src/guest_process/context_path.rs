//! Resolves the directories that a context names, and creates the errors for missing ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{SandboxError, SandboxErrorKind};

/// The real path of the directory at `path`. `what` names its role in the sandbox.
pub(crate) fn resolve_dir(what: &str, path: &Path) -> Result<PathBuf, SandboxError> {
    let real = fs::canonicalize(path).map_err(|error| missing_dir(what, path, &error))?;
    if real.is_dir() {
        return Ok(real);
    }
    Err(SandboxError::new(
        SandboxErrorKind::WrongFileType,
        format!("the {what} `{}` is not a directory", path.display()),
    ))
}

/// The error for a path that cannot be resolved.
pub(crate) fn missing_dir(what: &str, path: &Path, error: &io::Error) -> SandboxError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => SandboxErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => SandboxErrorKind::PermissionDenied,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, format!("the {what} `{}` cannot be used: {error}", path.display()))
}

/// The path as text for the protocol.
pub(crate) fn utf8_path(path: &Path) -> Result<String, SandboxError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        SandboxError::new(
            SandboxErrorKind::BadRequest,
            format!("the path `{}` is not UTF-8; rename it", path.display()),
        )
    })
}

/// The error for a sandbox that cannot be created.
pub(crate) fn unavailable(what: &str, error: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, format!("{what}: {error}"))
}
