//! The directory that a session works in. It is private, contains copies of the session's inputs, and is compared before and
//! after a turn.
//!
//! A temporary workspace is in the data directory, which only its owner may enter. It is removed when the
//! [`SessionWorkspace`] is dropped, unless [`SessionWorkspace::keep`] was called. After a crash, opening the data directory
//! again removes it.
//!
//! A kept workspace in a temporary data directory (`conjure-…`) stays until the system clears its temporary files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use conjure_sandbox::{DataDir, OwnedWorkspace};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::snapshot::{ProducedFiles, WorkspaceSnapshot};

/// The directory of a session.
#[derive(Debug)]
pub struct SessionWorkspace {
    path: PathBuf,
    guard: Option<OwnedWorkspace>,
}

impl SessionWorkspace {
    /// Creates a directory in the system's temporary directory. It is removed when the value is dropped.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created.
    pub fn temporary() -> Result<Self, Error> {
        Self::private(&temporary_data()?)
    }

    /// Creates a directory that is removed when the value is dropped. Its parent directory may be entered only by its owner.
    /// Commands can change the permissions of their workspace, but not those of the parent directory.
    ///
    /// # Errors
    ///
    /// If the data directory cannot be written.
    pub fn private(data: &DataDir) -> Result<Self, Error> {
        let guard = data.workspace().map_err(|error| Error::PermissionDenied {
            path: data.path().to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self { path: guard.path().to_owned(), guard: Some(guard) })
    }

    /// Uses an existing directory, which is not removed.
    ///
    /// # Errors
    ///
    /// If it does not exist, is not a directory, or may not be entered.
    pub fn existing(path: &Path) -> Result<Self, Error> {
        let resolved = path.canonicalize().map_err(|error| Error::io(path, &error))?;
        // Listing it proves that it is a directory, and that this process may enter it.
        std::fs::read_dir(&resolved).map_err(|error| Error::io(path, &error))?;
        Ok(Self { path: resolved, guard: None })
    }

    /// Uses an existing directory at a path that contained no links when it was recorded. If it contains a link now, the
    /// link is not followed. For example, a tool that may write the parent directory may have created it.
    ///
    /// # Errors
    ///
    /// As for [`SessionWorkspace::existing`], and if the path contains a link.
    pub fn at_real_path(path: &Path) -> Result<Self, Error> {
        let dir = open_real(path)?;
        // Reads the path of the opened directory, because the given path may lead elsewhere by now.
        let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))
            .map_err(|error| Error::io(path, &error))?;
        Ok(Self { path, guard: None })
    }

    /// Its absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is removed when the value is dropped.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        self.guard.is_some()
    }

    /// Keeps a temporary directory when the value is dropped.
    ///
    /// # Errors
    ///
    /// If that cannot be recorded on the disk. The directory then exists only until the data directory is opened again.
    pub fn keep(&mut self) -> Result<(), Error> {
        let kept = self.guard.take().map(OwnedWorkspace::keep).transpose();
        kept.map(drop).map_err(Error::from)
    }

    /// Copies the file at `source` into the directory, under its own name, and returns the copy's path. A file that already
    /// lies in the directory under that name stays where it is.
    ///
    /// # Errors
    /// If `source` is not a regular file (a device or a pipe is not even read), or if the name is taken.
    pub fn add_file(&self, source: &Path) -> Result<PathBuf, Error> {
        let refused = |reason: &str| Error::PermissionDenied {
            path: source.to_owned(),
            reason: format!("`{}` cannot be given: {reason}", source.display()),
        };
        // Opening a pipe would wait for its other end, and opening a device may have effects. So the file's type is
        // checked first. Then the file is opened without waiting, and its type is checked again.
        let found = std::fs::metadata(source).map_err(|error| Error::io(source, &error))?;
        if !found.is_file() {
            return Err(refused("it is not a regular file"));
        }
        #[expect(clippy::cast_possible_wrap, reason = "the flag is one low bit")]
        let no_wait = OFlags::NONBLOCK.bits() as i32;
        let from = OpenOptions::new()
            .read(true)
            .custom_flags(no_wait)
            .open(source)
            .map_err(|error| Error::io(source, &error))?;
        self.add_open_file(source, from)
    }

    /// Like [`SessionWorkspace::add_file`], for a file that is open for reading. `source` gives the copy its name.
    ///
    /// # Errors
    /// As for [`SessionWorkspace::add_file`].
    pub fn add_open_file(&self, source: &Path, mut from: File) -> Result<PathBuf, Error> {
        let refused = |reason: &str| Error::PermissionDenied {
            path: source.to_owned(),
            reason: format!("`{}` cannot be given: {reason}", source.display()),
        };
        let name = source.file_name().ok_or_else(|| refused("it has no file name"))?;
        let metadata = from.metadata().map_err(|error| Error::io(source, &error))?;
        if !metadata.is_file() {
            return Err(refused("it is not a regular file"));
        }
        let target = self.path.join(name);
        let failed = |errno: Errno| Error::io(&target, &errno.into());
        let dir = open_real(&self.path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(metadata.mode() & 0o777 | 0o600);
        match rustix::fs::openat(&dir, name, flags, mode) {
            Ok(to) => io::copy(&mut from, &mut File::from(to)).map(drop).map_err(|error| {
                // An incomplete copy is useless.
                let _ = rustix::fs::unlinkat(&dir, name, AtFlags::empty());
                Error::io(&target, &error)
            })?,
            Err(Errno::EXIST) => {
                let there = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                if (there.st_dev, there.st_ino) != (metadata.dev(), metadata.ino()) {
                    return Err(refused("the workspace has another file of that name"));
                }
            }
            Err(errno) => return Err(failed(errno)),
        }
        Ok(target)
    }

    /// A snapshot of the current files, for a later comparison. Reads names and dates, not contents.
    #[must_use]
    pub fn snapshot(&self) -> WorkspaceSnapshot {
        WorkspaceSnapshot::new(&self.path)
    }

    /// The files that are new or changed since the snapshot `before`.
    #[must_use]
    pub fn produced_since(&self, before: &WorkspaceSnapshot) -> ProducedFiles {
        WorkspaceSnapshot::new(&self.path).produced_since(before)
    }
}

/// A data directory that is removed when its last user drops it.
pub(crate) fn temporary_data() -> Result<DataDir, Error> {
    let around = std::env::temp_dir();
    DataDir::temporary().map_err(|error| Error::PermissionDenied {
        reason: format!(
            "no directory can be made in the temporary directory `{}` (TMPDIR names another): {error}",
            around.display()
        ),
        path: around,
    })
}

/// Opens a directory whose path contains no link.
pub(crate) fn open_real(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    opened.map_err(|errno| match errno {
        Errno::LOOP => Error::PermissionDenied {
            path: path.to_owned(),
            reason: format!(
                "a symbolic link stands in the path `{}` now, where there was none: it is not followed",
                path.display()
            ),
        },
        other => Error::io(path, &other.into()),
    })
}

#[cfg(test)]
mod tests;
