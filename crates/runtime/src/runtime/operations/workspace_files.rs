//! Files that the host copies into a session's workspace or reads from it. The session's commands may change the
//! workspace in any way, and commands of a session that works in a directory above it may replace it by a link. So every
//! path is opened beneath a directory handle, and no link is followed, not even in the path of the workspace.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conjure_base::{SessionId, TenantId, Timestamp};
use conjure_fs::{DirHandle, Links, OpenError, StagedFile, entries};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::task_set::run_blocking;

/// The most files that a listing returns.
const MAX_ENTRIES: usize = 10_000;

/// The depth to which a listing enters directories.
const MAX_DEPTH: usize = 16;

/// A file in a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceFile {
    /// Its path, relative to the directory that was listed.
    pub path: PathBuf,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed.
    pub modified: Timestamp,
}

impl Runtime {
    /// Copies a file of the tenant ([`Runtime::upload_file`]) to the path `place` in a session's workspace. Nothing may
    /// exist at that path yet, otherwise it fails with [`RuntimeError::WorkspaceFile`]. Missing directories are
    /// created. The file appears when it is complete; after a failure, nothing is left but directories.
    ///
    /// # Errors
    ///
    /// If there is no such session or file, if the tenant has reached its disk quota, if the session has no workspace on
    /// this machine, if the path is taken, or if the file cannot be written.
    pub async fn copy_to_workspace(
        &self,
        tenant: &TenantId,
        id: SessionId,
        file: &str,
        place: &Path,
    ) -> Result<(), RuntimeError> {
        self.inner.factory.sandboxes.disk_usage().check(tenant).await?;
        let workspace = self.workspace_of(tenant, id).await?;
        let failed = |reason: String| RuntimeError::WorkspaceFile { path: place.to_owned(), reason };
        let source = self.open_file(tenant, file).await?;
        let mut source = source.ok_or_else(|| failed("the content of the file is gone".to_owned()))?;
        let place = place.to_owned();
        run_blocking("the copy of a file into a workspace", move || {
            let failed = |reason: String| RuntimeError::WorkspaceFile { path: place.clone(), reason };
            let of_errno = |errno: Errno| match errno {
                Errno::EXIST => failed("something is there already".to_owned()),
                Errno::LOOP | Errno::NOTDIR => failed("a file or link is in its way".to_owned()),
                errno => failed(errno.to_string()),
            };
            let of_io = |error: std::io::Error| match Errno::from_io_error(&error) {
                Some(errno) => of_errno(errno),
                None => failed(error.to_string()),
            };
            let name = place.file_name().ok_or_else(|| failed("it names no file".to_owned()))?;
            let root = DirHandle::open_direct(&workspace).map_err(of_errno)?;
            let dir = match place.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                Some(parent) => root.create_dirs(parent, Mode::from_raw_mode(0o755)).map_err(of_errno)?,
                None => root,
            };
            let mut target = StagedFile::create_unnamed(&dir, Mode::from_raw_mode(0o644)).map_err(of_io)?;
            // The kernel copies where possible, so a file system that can share blocks does so.
            std::io::copy(&mut source, target.file()).map_err(of_io)?;
            target.rename_new(name).map_err(of_io)
        })
        .await
    }

    /// Removes a file from a session's workspace. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// If there is no such session, or the file cannot be removed.
    pub async fn remove_from_workspace(
        &self,
        tenant: &TenantId,
        id: SessionId,
        place: &Path,
    ) -> Result<bool, RuntimeError> {
        let workspace = self.workspace_of(tenant, id).await?;
        let place = place.to_owned();
        run_blocking("the removal of a file from a workspace", move || {
            let failed =
                |errno: Errno| RuntimeError::WorkspaceFile { path: place.clone(), reason: errno.to_string() };
            let root = DirHandle::open_direct(&workspace).map_err(failed)?;
            let (parent, name) = (place.parent().unwrap_or(Path::new("")), place.file_name());
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let dir = match root.open_dir(parent) {
                Ok(dir) => dir,
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(false),
                Err(errno) => return Err(failed(errno)),
            };
            match rustix::fs::unlinkat(&dir, name.unwrap_or_default(), rustix::fs::AtFlags::empty()) {
                Ok(()) => Ok(true),
                Err(Errno::NOENT | Errno::ISDIR) => Ok(false),
                Err(errno) => Err(failed(errno)),
            }
        })
        .await
    }

    /// The regular files in a directory of a session's workspace and in its subdirectories, by path. Links and special
    /// files are left out, and so are files that would make all of them larger than the disk limit of a sandbox: files
    /// with holes and hard links can seem to be much larger than what they occupy. If there is no such directory, the
    /// list is empty.
    ///
    /// # Errors
    ///
    /// If there is no such session, or the directory cannot be listed.
    pub async fn workspace_files(
        &self,
        tenant: &TenantId,
        id: SessionId,
        dir: &Path,
    ) -> Result<Vec<WorkspaceFile>, RuntimeError> {
        let workspace = self.workspace_of(tenant, id).await?;
        let dir = dir.to_owned();
        let mut listing = Listing {
            files: Vec::new(),
            bytes_left: self.inner.factory.config.limits().disk(),
            too_large: 0,
        };
        run_blocking("the listing of a workspace", move || {
            let failed =
                |errno: Errno| RuntimeError::WorkspaceFile { path: dir.clone(), reason: errno.to_string() };
            let root = DirHandle::open_direct(&workspace).map_err(failed)?;
            match root.open_dir(&dir) {
                Ok(dir) => listing.add(&dir, Path::new(""), MAX_DEPTH).map_err(failed)?,
                // There is no such directory, or commands have put something else there.
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if listing.too_large > 0 {
                tracing::warn!(session = %id, files = listing.too_large, "files are left out: all are larger than the disk limit");
            }
            listing.files.sort_by(|one, other| one.path.cmp(&other.path));
            Ok(listing.files)
        })
        .await
    }

    /// Opens a regular file of a session's workspace. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If there is no such session, or the file cannot be opened.
    pub async fn open_workspace_file(
        &self,
        tenant: &TenantId,
        id: SessionId,
        path: &Path,
    ) -> Result<Option<File>, RuntimeError> {
        let workspace = self.workspace_of(tenant, id).await?;
        let path = path.to_owned();
        run_blocking("the opening of a file of a workspace", move || {
            let failed = |reason: String| RuntimeError::WorkspaceFile { path: path.clone(), reason };
            let root = DirHandle::open_direct(&workspace).map_err(|errno| failed(errno.to_string()))?;
            match root.open_file(&path, Links::Refused) {
                Ok(file) => Ok(Some(file.into_file())),
                Err(
                    OpenError::NotFound(_) | OpenError::NotRegular | OpenError::Link | OpenError::EscapesRoot,
                ) => Ok(None),
                Err(error) => Err(failed(error.to_string())),
            }
        })
        .await
    }

    async fn workspace_of(&self, tenant: &TenantId, id: SessionId) -> Result<PathBuf, RuntimeError> {
        let none = || RuntimeError::WorkspaceFile {
            path: PathBuf::new(),
            reason: "the session has no workspace on this machine".to_owned(),
        };
        self.workspace(tenant, id).await?.ok_or_else(none)
    }
}

/// The files that were found.
struct Listing {
    files: Vec<WorkspaceFile>,
    /// How large further files may be together.
    bytes_left: u64,
    /// The number of files that are left out because of that.
    too_large: u64,
}

impl Listing {
    /// Adds the files of a directory and of its subdirectories.
    fn add(&mut self, dir: &DirHandle, path: &Path, depth: usize) -> Result<(), Errno> {
        for entry in entries(dir)? {
            if self.files.len() >= MAX_ENTRIES {
                return Ok(());
            }
            let name = Path::new(&entry.name);
            let found = match rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => found,
                // It was removed just now.
                Err(_) => continue,
            };
            let path = path.join(name);
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => {
                    let seconds = u64::try_from(found.st_mtime).unwrap_or_default();
                    let nanos = u32::try_from(found.st_mtime_nsec).unwrap_or_default();
                    let modified = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos.min(999_999_999));
                    let size = u64::try_from(found.st_size).unwrap_or_default();
                    let Some(bytes_left) = self.bytes_left.checked_sub(size) else {
                        self.too_large += 1;
                        continue;
                    };
                    self.bytes_left = bytes_left;
                    let modified = Timestamp::from_system_time(modified);
                    self.files.push(WorkspaceFile { path, size, modified });
                }
                FileType::Directory if depth > 0 => {
                    if let Ok(inner) = dir.open_dir(name) {
                        self.add(&inner, &path, depth - 1)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
