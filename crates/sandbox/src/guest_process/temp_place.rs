//! [`TempPlace`]: a temporary folder that does not outlive its process for long.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use conjure_fs::FileLock;
use tempfile::TempDir;

/// A temporary folder. It is removed when this is dropped, or, if its process is killed, by a later runtime of the same user.
#[derive(Debug)]
pub(crate) struct TempPlace {
    _folder: TempDir,
    _lock: FileLock,
}

impl TempPlace {
    /// Makes a folder that only its owner sees, and returns its real path. Blocks.
    pub(super) fn make() -> io::Result<(Self, PathBuf)> {
        let permissions = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("conjure-").permissions(permissions).tempdir()?;
        let path = fs::canonicalize(folder.path())?;
        let lock = FileLock::mark_temporary_dir(&path)?;
        Ok((Self { _folder: folder, _lock: lock }, path))
    }
}
