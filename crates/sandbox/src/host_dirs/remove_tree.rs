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
/// Those of the system, and `WrongFileType` when it is not a directory.
pub fn dir_id(path: &Path) -> Result<FileId, SandboxError> {
    Ok(conjure_fs::dir_id(path).map_err(|errno| RemoveError::new(path.as_os_str(), errno))?)
}

/// Removes the directory at `path` and everything in it, if it is still the directory with this id. A missing
/// directory is no error. Entries that cannot be removed stay, with the directories that contain them.
///
/// # Errors
/// `WrongFileType` when another directory or another kind of file is at `path` now; then nothing is removed.
/// `PermissionDenied` and others when entries in it cannot be removed: the error of the first one.
pub fn remove_tree(path: &Path, id: FileId) -> Result<(), SandboxError> {
    Ok(TreeRemoval::new(Some(id)).with_prepare(unmount).remove_path(path)?)
}

/// Removes the directory `name` of an open directory, as [`remove_tree`] does. Without an id, it removes any
/// directory of that name.
pub(crate) fn remove_beneath(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    id: Option<FileId>,
) -> Result<(), SandboxError> {
    Ok(TreeRemoval::new(id).with_prepare(unmount).remove(parent, name)?)
}

/// The error for a directory of the host that cannot be removed.
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
