//! Opens files beneath the handle of a folder.
//!
//! The kernel resolves each path beneath the handle (`openat2`). So neither `..` nor a link leads out, even if a
//! link is exchanged meanwhile. State: one descriptor.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::SkillError;

/// The reason when a file is not a regular file.
pub(crate) const NOT_PLAIN: &str = "it is not a plain file";
/// The reason when a path leads out.
pub(crate) const LEADS_OUT: &str = "it leads out of the skill's folder";

/// A rename or a mount anywhere on the machine makes the kernel give up on a path with `..`. It is retried this
/// often at once, and this often after a pause: about a second in total.
const RACES: u32 = 16;
const PATIENT_RACES: u32 = 1000;

/// An open folder, beneath which files are read.
#[derive(Debug)]
pub(crate) struct DirHandle {
    handle: OwnedFd,
    path: PathBuf,
}

/// Opens a regular file. The path must contain no link.
pub(crate) fn open_direct(path: &Path) -> Result<RegularFile, SkillError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let handle = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    RegularFile::of(handle.map_err(|errno| failure(path, errno))?, path.to_owned())
}

/// Opens a regular file that a user named. The path may contain links.
pub(crate) fn open_named(path: &Path) -> Result<RegularFile, SkillError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(CWD, path, flags, Mode::empty());
    RegularFile::of(handle.map_err(|errno| failure(path, errno))?, path.to_owned())
}

/// Opens a folder for listing. The path must contain no link.
pub(crate) fn open_folder_direct(path: &Path) -> Result<OwnedFd, SkillError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|errno| failure(path, errno))
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) kind: EntryKind,
}

/// The kind of an entry. Links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    Folder,
    File,
    Link,
    /// A device, a pipe or a socket.
    Other,
}

/// Returns the entries of an open folder, sorted by name.
pub(crate) fn entries(folder: &OwnedFd, path: &Path) -> Result<Vec<Entry>, SkillError> {
    let failed = |errno: Errno| SkillError::from_io(path, errno.into());
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        let kind = match kind {
            FileType::Directory => EntryKind::Folder,
            FileType::RegularFile => EntryKind::File,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        };
        entries.push(Entry { name: OsString::from_vec(name.to_bytes().to_vec()), kind });
    }
    entries.sort();
    Ok(entries)
}

/// An open regular file, with its size at that time.
#[derive(Debug)]
pub(crate) struct RegularFile {
    file: File,
    size: u64,
    path: PathBuf,
}

impl DirHandle {
    /// Opens a folder by its path.
    pub(crate) fn open(path: &Path) -> Result<Self, SkillError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| SkillError::from_io(path, errno.into()))?;
        Ok(Self { handle, path: path.to_owned() })
    }

    /// Opens a regular file beneath the folder. Links are followed as long as they stay beneath it.
    pub(crate) fn open_file(&self, relative: &Path) -> Result<RegularFile, SkillError> {
        let path = self.path.join(relative);
        let handle =
            self.resolve(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, ResolveFlags::empty());
        let handle = handle.map_err(|errno| failure(&path, errno))?;
        RegularFile::of(handle, path)
    }

    /// Creates a file beneath the folder, through no link, with access for the owner only.
    pub(crate) fn create_file(&self, relative: &Path) -> Result<File, SkillError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.handle, relative, flags, Mode::RUSR | Mode::WUSR, resolve)
            .map(File::from)
            .map_err(|errno| self.write_failure(relative, errno))
    }

    /// Creates the missing folders of this path, through no link, with access for the owner only.
    pub(crate) fn create_folders(&self, relative: &Path) -> Result<(), SkillError> {
        let mut made = PathBuf::new();
        for segment in relative.components() {
            let parent = if made.as_os_str().is_empty() { Path::new(".") } else { &made };
            let parent = self.open_folder(parent)?;
            made.push(segment);
            match rustix::fs::mkdirat(&parent, segment.as_os_str(), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.write_failure(&made, errno)),
            }
        }
        Ok(())
    }

    fn write_failure(&self, relative: &Path, errno: Errno) -> SkillError {
        SkillError::Write { path: self.path.join(relative), source: errno.into() }
    }

    /// Opens a folder beneath this one for listing, through no link.
    pub(crate) fn open_folder(&self, relative: &Path) -> Result<OwnedFd, SkillError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(relative, flags, ResolveFlags::NO_SYMLINKS)
            .map_err(|errno| failure(&self.path.join(relative), errno))
    }

    /// Returns the target of the link at this path.
    pub(crate) fn read_link(&self, relative: &Path) -> Result<Vec<u8>, SkillError> {
        let parent =
            relative.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = relative.file_name().unwrap_or_default();
        let target = rustix::fs::readlinkat(self.open_folder(parent)?, name, Vec::new());
        target
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| SkillError::from_io(&self.path.join(relative), errno.into()))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "nobody tells when a storm of renames is over; it blocks anyway"
    )]
    fn resolve(&self, relative: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for race in 0..PATIENT_RACES {
            match rustix::fs::openat2(&self.handle, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
            {
                Err(Errno::AGAIN | Errno::INTR) if race < RACES => {}
                Err(Errno::AGAIN | Errno::INTR) => thread::sleep(Duration::from_millis(1)),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

impl RegularFile {
    /// Wraps an open file, which must be a regular file.
    pub(crate) fn of(handle: OwnedFd, path: PathBuf) -> Result<Self, SkillError> {
        #[cfg(test)]
        recorded_opens::record(&path);
        let stat = rustix::fs::fstat(&handle).map_err(|errno| SkillError::from_io(&path, errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SkillError::PathNotAllowed { path, reason: NOT_PLAIN });
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { file: File::from(handle), size, path })
    }

    /// Whether its owner may execute it.
    pub(crate) fn is_executable(&self) -> Result<bool, SkillError> {
        let stat = rustix::fs::fstat(&self.file);
        let stat = stat.map_err(|errno| SkillError::from_io(&self.path, errno.into()))?;
        Ok(Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR))
    }

    /// Its size in bytes when it was opened.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Reads the whole file. Fails if it has more than `limit` bytes, even if it grows meanwhile.
    pub(crate) fn read_all(&mut self, limit: u64) -> Result<Vec<u8>, SkillError> {
        let too_large = || SkillError::TooLarge { path: self.path.clone(), limit };
        if self.size > limit {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.size).unwrap_or(0));
        let read = (&mut self.file).take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| SkillError::from_io(&self.path, error))?;
        if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
    }

    /// Reads the next bytes into the buffer. Returns 0 at the end of the file.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, SkillError> {
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(|error| SkillError::from_io(&self.path, error)),
            }
        }
    }
}

/// Converts an error of resolving a path beneath a folder.
fn failure(path: &Path, errno: Errno) -> SkillError {
    let path = path.to_owned();
    match errno {
        Errno::XDEV => SkillError::PathNotAllowed { path, reason: LEADS_OUT },
        Errno::LOOP => SkillError::PathNotAllowed {
            path,
            reason: "it is a link where none is followed, or a circle of links",
        },
        Errno::NXIO | Errno::ISDIR | Errno::NODEV => SkillError::PathNotAllowed { path, reason: NOT_PLAIN },
        other => SkillError::from_io(&path, other.into()),
    }
}

/// Records opened files, for tests that count them.
#[cfg(test)]
pub(crate) mod recorded_opens {
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    pub(super) fn record(path: &Path) {
        PATHS.lock().unwrap().push(path.to_owned());
    }

    /// Returns the files beneath this folder that were opened since the last call. Other tests use other folders.
    pub(crate) fn take_beneath(folder: &Path) -> Vec<PathBuf> {
        PATHS.lock().unwrap().extract_if(.., |path| path.starts_with(folder)).collect()
    }
}
