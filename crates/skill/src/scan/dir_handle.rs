//! Opens files beneath the handle of a directory: the files of [`conjure_fs`], with their paths in errors.
//!
//! The kernel resolves each path beneath the handle. So neither `..` nor a link leads out, even if a link is exchanged
//! meanwhile. State: one descriptor.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use conjure_fs::{DirEntry, Links, OpenError};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::SkillError;

pub(crate) use conjure_fs::EntryKind;

/// The reason when a file is not a regular file.
pub(crate) const NOT_REGULAR: &str = "it is not a regular file";
/// The reason when a path leads out.
pub(crate) const ESCAPES_DIR: &str = "it leads out of the skill's directory";

/// An open directory, beneath which files are read.
#[derive(Debug)]
pub(crate) struct DirHandle {
    handle: conjure_fs::DirHandle,
    path: PathBuf,
}

/// Opens a regular file. The path must contain no link.
pub(crate) fn open_direct(path: &Path) -> Result<RegularFile, SkillError> {
    RegularFile::new(conjure_fs::RegularFile::open(path, Links::Refused), path.to_owned())
}

/// Opens a regular file that a user named. The path may contain links, also those of `/proc`.
pub(crate) fn open_named(path: &Path) -> Result<RegularFile, SkillError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(OpenError::from);
    RegularFile::new(opened.and_then(conjure_fs::RegularFile::from_open), path.to_owned())
}

/// Opens a directory for listing. The path must contain no link.
pub(crate) fn open_dir_direct(path: &Path) -> Result<conjure_fs::DirHandle, SkillError> {
    conjure_fs::DirHandle::open_direct(path).map_err(|errno| failure(path, errno.into()))
}

/// Returns the entries of an open directory, sorted by name.
pub(crate) fn entries(dir: &conjure_fs::DirHandle, path: &Path) -> Result<Vec<DirEntry>, SkillError> {
    conjure_fs::entries(dir).map_err(|errno| SkillError::from_io(path, errno.into()))
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct RegularFile {
    file: conjure_fs::RegularFile,
    path: PathBuf,
}

impl DirHandle {
    /// Opens a directory by its path.
    pub(crate) fn open(path: &Path) -> Result<Self, SkillError> {
        let handle = conjure_fs::DirHandle::open(path);
        let handle = handle.map_err(|errno| SkillError::from_io(path, errno.into()))?;
        Ok(Self { handle, path: path.to_owned() })
    }

    /// Opens a regular file beneath the directory. Links are followed as long as they stay beneath it.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<RegularFile, SkillError> {
        RegularFile::new(self.handle.open_file(relative, Links::Followed), self.path.join(relative))
    }

    /// Creates a file beneath the directory, through no link, with access for the owner only.
    pub(crate) fn create_file(&self, relative: &Path) -> Result<File, SkillError> {
        let created = self.handle.create_file(relative, Mode::RUSR | Mode::WUSR);
        created.map_err(|errno| self.write_failure(relative, errno))
    }

    /// Creates the missing directories of this path, through no link, with access for the owner only.
    pub(crate) fn create_dirs(&self, relative: &Path) -> Result<(), SkillError> {
        let created = self.handle.create_dirs(relative, Mode::RWXU);
        created.map(drop).map_err(|errno| self.write_failure(relative, errno))
    }

    fn write_failure(&self, relative: &Path, errno: Errno) -> SkillError {
        SkillError::Write { path: self.path.join(relative), source: errno.into() }
    }

    /// Opens a directory beneath this one for listing, through no link.
    pub(crate) fn open_dir(&self, relative: &Path) -> Result<conjure_fs::DirHandle, SkillError> {
        self.handle.open_dir(relative).map_err(|errno| failure(&self.path.join(relative), errno.into()))
    }

    /// Returns the target of the link at this path.
    pub(crate) fn read_link(&self, relative: &Path) -> Result<Vec<u8>, SkillError> {
        let target = self.handle.read_link(relative);
        target.map(OsStringExt::into_vec).map_err(|errno| failure(&self.path.join(relative), errno.into()))
    }
}

impl RegularFile {
    fn new(opened: Result<conjure_fs::RegularFile, OpenError>, path: PathBuf) -> Result<Self, SkillError> {
        let file = opened.map_err(|error| failure(&path, error))?;
        #[cfg(test)]
        recorded_opens::record(&path);
        Ok(Self { file, path })
    }

    /// Whether its owner may execute it.
    pub(crate) fn is_executable(&self) -> bool {
        self.file.is_executable()
    }

    /// Its size in bytes when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads the whole file. Fails if it has more than `limit` bytes, even if it grows meanwhile.
    pub(crate) fn read_all(&mut self, limit: u64) -> Result<Vec<u8>, SkillError> {
        let read = self.file.read_all(limit).map_err(|error| self.read_failure(error))?;
        read.ok_or_else(|| SkillError::TooLarge { path: self.path.clone(), limit })
    }

    /// Reads the next bytes into the buffer. Returns 0 at the end of the file.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, SkillError> {
        self.file.read(buffer).map_err(|error| self.read_failure(error))
    }

    fn read_failure(&self, error: io::Error) -> SkillError {
        SkillError::from_io(&self.path, error)
    }
}

/// Converts an error of opening a path.
fn failure(path: &Path, error: OpenError) -> SkillError {
    let reason = match error {
        OpenError::EscapesRoot => ESCAPES_DIR,
        OpenError::Link => "it is a link where none is followed, or a circle of links",
        OpenError::NotRegular => NOT_REGULAR,
        OpenError::NotFound(errno) | OpenError::PermissionDenied(errno) | OpenError::Failed(errno) => {
            return SkillError::from_io(path, errno.into());
        }
    };
    SkillError::PathNotAllowed { path: path.to_owned(), reason }
}

/// Records opened files, for tests that count them.
#[cfg(test)]
pub(crate) mod recorded_opens {
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    pub(crate) fn record(path: &Path) {
        PATHS.lock().unwrap().push(path.to_owned());
    }

    /// Returns the files beneath this directory that were opened since the last call. Other tests use other directories.
    pub(crate) fn take_opened_files(dir: &Path) -> Vec<PathBuf> {
        PATHS.lock().unwrap().extract_if(.., |path| path.starts_with(dir)).collect()
    }
}
