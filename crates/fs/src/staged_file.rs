//! [`StagedFile`]: a file that is written beside its target, and gets its name when it is complete.
//!
//! State: the staged file. Dropping the value removes it. After a crash, a named staged file stays, and an unnamed
//! one disappears with its process. One exception: when an unnamed file replaces another, it has a name between two
//! adjacent system calls.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::rename::rename_file_new;

/// How many random names are tried.
const ATTEMPTS: u32 = 100;

/// A file that is being written.
#[derive(Debug)]
pub struct StagedFile {
    dir: OwnedFd,
    /// `None` for a file without a name.
    name: Option<String>,
    file: File,
}

impl StagedFile {
    /// Creates an empty file with a new name, `.conjure-…`, in an open directory. The umask applies to `mode`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(dir: impl AsFd, mode: Mode) -> io::Result<Self> {
        let dir = duplicate(dir.as_fd())?;
        let (name, file) = with_new_name(|name| open(&dir, name, OFlags::EXCL, mode))?;
        Ok(Self { dir, name: Some(name), file })
    }

    /// Creates an empty file of this name. A leftover of that name is overwritten, so the caller must hold a lock
    /// that excludes other writers.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create_as(dir: impl AsFd, name: &str, mode: Mode) -> io::Result<Self> {
        let dir = duplicate(dir.as_fd())?;
        let file = open(&dir, name, OFlags::TRUNC, mode)?;
        Ok(Self { dir, name: Some(name.to_owned()), file })
    }

    /// Creates an empty file without a name, where the file system supports that; else as [`StagedFile::create`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn create_unnamed(dir: impl AsFd, mode: Mode) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(&dir, ".", flags, mode) {
            Ok(file) if Path::new(&descriptor_path(&file)).exists() => {
                Ok(Self { dir: duplicate(dir.as_fd())?, name: None, file: file.into() })
            }
            // An old kernel misinterprets the flag, or `/proc` is missing, which is needed to link the file.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => Self::create(dir, mode),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The file.
    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its name in its directory until it is complete.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Waits until content and permissions are on the disk.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Waits until the content is on the disk; not for its permissions.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Gives the file its name in its directory. Another file of that name is replaced. A link of that name is
    /// replaced itself, not its target.
    ///
    /// # Errors
    /// Those of the system. The other file is then unchanged.
    pub fn replace(mut self, name: impl Arg + Copy) -> io::Result<()> {
        if self.name.is_none() {
            match self.link(name) {
                // A link cannot replace a file, but a rename can. The rename needs a temporary name.
                Err(Errno::EXIST) => {}
                linked => return Ok(linked?),
            }
            let (name, ()) = with_new_name(|name| self.link(name))?;
            self.name = Some(name);
        }
        rustix::fs::renameat(&self.dir, self.name(), &self.dir, name)?;
        self.name = None;
        Ok(())
    }

    /// Gives the file its name in its directory, which must be free.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken, also by a link, and others of the system.
    pub fn rename_new(mut self, name: impl Arg + Copy) -> io::Result<()> {
        match self.name.as_deref() {
            Some(staged) => rename_file_new(&self.dir, staged, &self.dir, name)?,
            None => self.link(name)?,
        }
        self.name = None;
        Ok(())
    }

    fn link(&self, name: impl Arg) -> Result<(), Errno> {
        let file = descriptor_path(&self.file);
        rustix::fs::linkat(CWD, file, &self.dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
        }
    }
}

/// Replaces the file at `path` durably: after a crash it has the old or the new content. Its mode is 0600. The staged
/// file has the same name with `.new` appended, so the caller must hold a lock that excludes other writers. Blocks
/// until everything is on the disk.
///
/// # Errors
/// Those of the system.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = File::open(parent.unwrap_or(Path::new(".")))?;
    let staged = format!("{}.new", name.to_str().ok_or(io::ErrorKind::InvalidInput)?);
    let mut file = StagedFile::create_as(&dir, &staged, Mode::RUSR | Mode::WUSR)?;
    file.write_all(content)?;
    file.sync()?;
    file.replace(name)?;
    dir.sync_all()
}

fn duplicate(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    dir.try_clone_to_owned()
}

fn open(dir: &OwnedFd, name: &str, flags: OFlags, mode: Mode) -> Result<File, Errno> {
    let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, mode).map(File::from)
}

fn with_new_name<T>(mut make: impl FnMut(&str) -> Result<T, Errno>) -> Result<(String, T), Errno> {
    for _ in 0..ATTEMPTS {
        let name = format!(".conjure-{:016x}.tmp", RandomState::new().build_hasher().finish());
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((name, made?)),
        }
    }
    Err(Errno::EXIST)
}

fn descriptor_path(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    type Create = fn(&File) -> io::Result<StagedFile>;

    const CREATE: [Create; 3] = [
        |dir| StagedFile::create(dir, Mode::RWXU),
        |dir| StagedFile::create_unnamed(dir, Mode::RWXU),
        |dir| StagedFile::create_as(dir, "out.new", Mode::RWXU),
    ];

    #[test]
    fn a_file_appears_complete_or_not_at_all() {
        for create in CREATE {
            let temp = tempfile::tempdir().unwrap();
            let (path, dir) = (temp.path().join("out"), File::open(temp.path()).unwrap());
            fs::write(temp.path().join("mine"), "mine").unwrap();
            symlink("mine", temp.path().join("link")).unwrap();
            let staged = |content: &str| {
                let mut staged = create(&dir).unwrap();
                staged.write_all(content.as_bytes()).unwrap();
                staged
            };
            for content in ["first", "second"] {
                staged(content).replace("out").unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), content);
            }
            for taken in ["out", "link"] {
                let error = staged("third").rename_new(taken).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            }
            staged("new").rename_new("new").unwrap();
            // The link is replaced, not followed.
            staged("fourth").replace("link").unwrap();
            assert_eq!(fs::read_to_string(temp.path().join("mine")).unwrap(), "mine");
            drop(staged("never named"));
            let mut left: Vec<_> =
                fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["link", "mine", "new", "out"]);
        }
    }

    #[test]
    fn a_leftover_does_not_keep_a_file_from_being_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("notes.json");
        fs::write(temp.path().join("notes.json.new"), "longer than the new content").unwrap();
        for content in ["one", "two"] {
            replace_file(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
