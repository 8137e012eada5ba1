//! [`DirHandle`]: an open directory, beneath which files are opened and created.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::regular_file::{Links, OpenError, RegularFile, open_beneath, open_retrying};

/// Flags that open a directory itself, and not a link to it.
const DIRECT: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory. The handle stays on the same directory when the directory is moved.
#[derive(Debug)]
pub struct DirHandle(OwnedFd);

impl DirHandle {
    /// Opens a directory by path. Links are followed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty()).map(Self)
    }

    /// Opens a directory by path for listing. The path must contain no link.
    ///
    /// # Errors
    /// `LOOP` for a link, and others of the system.
    pub fn open_direct(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        open_retrying(CWD, path, flags, Links::Refused.resolve_flags()).map(Self)
    }

    /// Opens a regular file beneath the directory.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_file(&self, relative: &Path, links: Links) -> Result<RegularFile, OpenError> {
        RegularFile::open_in(&self.0, relative, ResolveFlags::BENEATH | links.resolve_flags())
    }

    /// Opens a directory beneath this one for listing. The path must contain no link.
    ///
    /// # Errors
    /// `LOOP` for a link, `XDEV` for a path that leads out, and others of the system.
    pub fn open_dir(&self, relative: &Path) -> Result<Self, Errno> {
        open_beneath(&self.0, relative, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused).map(Self)
    }

    /// Creates a file beneath the directory, through no link. The umask applies to `mode`.
    ///
    /// # Errors
    /// `EXIST` when the name is taken, also by a link, and others of the system.
    pub fn create_file(&self, relative: &Path, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.0, relative, flags, mode, resolve).map(File::from)
    }

    /// Opens the directory at a plain relative path, and creates the missing ones on the way with exactly this mode,
    /// whatever the umask is. No link is followed.
    ///
    /// # Errors
    /// `INVAL` for a path with components other than names. `NOTDIR` or `LOOP` when a component is a link or a file.
    /// Others of the system.
    pub fn create_dirs(&self, relative: &Path, mode: Mode) -> Result<Self, Errno> {
        let mut dir = Self(rustix::fs::openat(&self.0, ".", DIRECT, Mode::empty())?);
        for component in relative.components() {
            let Component::Normal(name) = component else { return Err(Errno::INVAL) };
            dir = dir.open_or_create(name, mode)?;
        }
        Ok(dir)
    }

    /// Opens the directory of this name in this one, or creates it, as [`DirHandle::create_dirs`].
    ///
    /// # Errors
    /// As [`DirHandle::create_dirs`].
    pub fn open_or_create(&self, name: &OsStr, mode: Mode) -> Result<Self, Errno> {
        match rustix::fs::openat(&self.0, name, DIRECT, Mode::empty()) {
            Err(Errno::NOENT) => {}
            other => return other.map(Self),
        }
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            // By its handle: another directory may have the name by now.
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let created = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
                rustix::fs::fchmod(&created, mode)?;
                Ok(Self(created))
            }
            // Another process has created it first.
            Err(Errno::EXIST) => rustix::fs::openat(&self.0, name, DIRECT, Mode::empty()).map(Self),
            Err(errno) => Err(errno),
        }
    }

    /// The target of the link at this path, whose other components must be no links.
    ///
    /// # Errors
    /// `INVAL` when it is no link, and others of the system.
    pub fn read_link(&self, relative: &Path) -> Result<OsString, Errno> {
        let parent = relative.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = self.open_dir(parent.unwrap_or(Path::new(".")))?;
        let target = rustix::fs::readlinkat(parent, relative.file_name().unwrap_or_default(), Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }
}

impl AsFd for DirHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wraps an open directory.
impl From<OwnedFd> for DirHandle {
    fn from(dir: OwnedFd) -> Self {
        Self(dir)
    }
}

impl From<DirHandle> for OwnedFd {
    fn from(dir: DirHandle) -> Self {
        dir.0
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name.
    pub name: OsString,
    /// Its kind.
    pub kind: EntryKind,
}

/// The kind of an entry. Links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket.
    Other,
}

/// The entries of an open directory, sorted by name. All of them are read before the first is returned, so entries may
/// be moved or removed meanwhile.
///
/// # Errors
/// Those of the system. An entry that vanishes meanwhile is left out.
pub fn entries(dir: impl AsFd) -> Result<Vec<DirEntry>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => FileType::from_raw_mode(stat?.st_mode),
            },
            known => known,
        };
        let kind = match kind {
            FileType::Directory => EntryKind::Dir,
            FileType::RegularFile => EntryKind::File,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        };
        entries.push(DirEntry { name: OsString::from_vec(name.to_bytes().to_vec()), kind });
    }
    entries.sort();
    Ok(entries)
}

/// Creates a directory and its missing parents, for their owner only. An existing one is no error.
///
/// # Errors
/// Those of the system.
pub fn ensure_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates an empty file, for its owner only. An existing file stays as it is. A link at the end of the path is not followed.
///
/// # Errors
/// Those of the system.
pub fn ensure_file(path: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map(drop)?)
}

/// Waits until the entries of the directory at `path` are on the disk.
///
/// # Errors
/// Those of the system.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn directories_and_files_are_created_through_no_link() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("root/there")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        symlink(at("outside"), at("root/link")).unwrap();
        let root = DirHandle::open(&at("root")).unwrap();
        root.create_dirs(Path::new("there/a/b"), Mode::from_raw_mode(0o755)).unwrap();
        assert_eq!(fs::metadata(at("root/there/a/b")).unwrap().permissions().mode() & 0o7777, 0o755);
        root.create_file(Path::new("there/a/file"), Mode::RUSR).unwrap();
        for path in ["link/a", "../outside/a", "/a", "there/a/file/b"] {
            assert!(root.create_dirs(Path::new(path), Mode::RWXU).is_err(), "{path}");
            assert!(root.create_file(Path::new(path), Mode::RUSR).is_err(), "{path}");
        }
        assert_eq!(root.create_file(Path::new("link"), Mode::RUSR).unwrap_err(), Errno::EXIST);
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
        assert_eq!(root.read_link(Path::new("link")).unwrap(), at("outside"));
        assert!(root.open_dir(Path::new("link")).is_err());
    }

    #[test]
    fn entries_have_their_kinds_in_order() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("b")).unwrap();
        fs::write(temp.path().join("a"), "").unwrap();
        symlink("a", temp.path().join("c")).unwrap();
        let found = entries(DirHandle::open_direct(temp.path()).unwrap()).unwrap();
        let found: Vec<_> = found.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
        assert_eq!(found, [("a", EntryKind::File), ("b", EntryKind::Dir), ("c", EntryKind::Link)]);
    }
}
