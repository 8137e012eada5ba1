//! Removes directories of sandboxes. A workspace that the kernel limits is unmounted first.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use conjure_base::FileId;
use conjure_fs::{RemoveError, TreeRemoval};
use rustix::io::Errno;

use super::disk_image::unmount;
use crate::error::{SandboxError, SandboxErrorKind};

/// The identity of the directory at `path`, through no link.
///
/// # Errors
/// Those of the system, and `WrongFileType` when it is no directory.
pub fn dir_id(path: &Path) -> Result<FileId, SandboxError> {
    Ok(conjure_fs::dir_id(path).map_err(|errno| RemoveError::new(path.as_os_str(), errno))?)
}

/// Removes the directory at `path` and everything in it, provided that it is still this one. One that does not exist is
/// no error. What cannot be removed is left, with the directories that hold it.
///
/// # Errors
/// `WrongFileType` when another directory or something else is at `path` now; then nothing is removed.
/// `PermissionDenied` and others when something in it cannot be removed: the error of the first such entry.
pub fn remove_tree(path: &Path, id: FileId) -> Result<(), SandboxError> {
    Ok(TreeRemoval::new(Some(id)).with_prepare(unmount).remove_path(path)?)
}

/// Removes the directory `name` of an open directory, as [`remove_tree`] does; without an id, whichever it is.
pub(crate) fn remove_beneath(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    id: Option<FileId>,
) -> Result<(), SandboxError> {
    Ok(TreeRemoval::new(id).with_prepare(unmount).remove(parent, name)?)
}

/// For a directory of the host that cannot be removed.
impl From<RemoveError> for SandboxError {
    fn from(error: RemoveError) -> Self {
        let kind = match error.errno() {
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => SandboxErrorKind::PermissionDenied,
            None | Some(Errno::NOTDIR | Errno::LOOP) => SandboxErrorKind::WrongFileType,
            Some(Errno::NOENT) => SandboxErrorKind::NotFound,
            Some(_) => SandboxErrorKind::Io,
        };
        Self::new(kind, error.to_string())
    }
}
