//! [`MarkedTempDir`]: a temporary directory that is removed soon after its process has ended.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use conjure_fs::FileLock;
use tempfile::TempDir;

/// A temporary directory. It is removed when this is dropped, or, if its process is killed, by a later runtime of the same user.
#[derive(Debug)]
pub(crate) struct MarkedTempDir {
    _dir: TempDir,
    /// `None` on a file system without locks. There, the directory of a killed process is never removed.
    _lock: Option<FileLock>,
}

impl MarkedTempDir {
    /// Creates a directory that only its owner can access, and returns its real path. Blocks.
    pub(super) fn make() -> io::Result<(Self, PathBuf)> {
        let permissions = fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("conjure-").permissions(permissions).tempdir()?;
        let path = fs::canonicalize(dir.path())?;
        let lock = FileLock::mark_temporary_dir(&path)
            .inspect_err(|error| tracing::debug!(%error, "a temporary directory is not marked as in use"))
            .ok();
        Ok((Self { _dir: dir, _lock: lock }, path))
    }
}

#[cfg(test)]
mod tests {
    use conjure_fs::TEMPORARY_DIR_LOCK;

    use super::*;

    #[test]
    fn the_directory_is_marked_as_long_as_it_is_used() {
        let (dir, path) = MarkedTempDir::make().unwrap();
        let mark = path.join(TEMPORARY_DIR_LOCK);
        let is_used = || FileLock::try_exclusive(FileLock::open(&mark).unwrap()).unwrap().is_none();
        assert!(mark.is_file() && is_used());
        // What a kill leaves is not marked any more.
        let MarkedTempDir { _dir: dir, _lock: lock } = dir;
        drop(lock);
        assert!(!is_used());
        drop(dir);
        assert!(!path.exists());
    }
}
