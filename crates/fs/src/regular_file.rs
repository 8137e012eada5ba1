//! [`RegularFile`]: opens regular files, and nothing else, without blocking on pipes or touching devices.
//!
//! A path is first opened with `O_PATH` and inspected; only a regular file is then opened for reading. The kernel
//! resolves the path (`openat2`), so neither `..` nor a link leads out, even if a link is exchanged meanwhile.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::stat::file_size;

/// How often the open of a path is retried. A rename or a mount anywhere on the machine makes the kernel give up on a
/// path with `..`. It is retried this often at once, and this often after a pause of a millisecond: about a second in
/// total.
const RACES: u32 = 16;
const PATIENT_RACES: u32 = 1000;

/// The kernel's pseudo file systems, whose files are generated while they are read.
const PSEUDO_FILE_SYSTEMS: [i64; 16] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0x1cd1,      // devpts
    0x1980_0202, // mqueue
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x6e73_6673, // nsfs
    0x5049_5045, // pipefs
    0x4249_4e4d, // binfmt_misc
];

/// Why a file was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is a directory, a device, a pipe, a socket, or in a pseudo file system.
    #[error("it is not a regular file")]
    NotRegular,
    /// A link where none is followed, a link of `/proc`, or a loop of links.
    #[error("it is a link where none is followed, or a circle of links")]
    Link,
    /// The path leads out of the directory.
    #[error("it leads out of its directory")]
    EscapesRoot,
    /// It does not exist, or no file can have that path.
    #[error("{}", io::Error::from(*.0))]
    NotFound(Errno),
    /// This process may not read it.
    #[error("{}", io::Error::from(*.0))]
    PermissionDenied(Errno),
    /// Another error of the system.
    #[error("{}", io::Error::from(*.0))]
    Failed(Errno),
}

/// Which symbolic links are followed. The magic links of `/proc` never are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Links that stay beneath the directory; without a directory, all of them.
    Followed,
    /// None, in no component of the path.
    Refused,
}

impl Links {
    pub(crate) const fn resolve_flags(self) -> ResolveFlags {
        match self {
            Self::Followed => ResolveFlags::NO_MAGICLINKS,
            Self::Refused => ResolveFlags::NO_MAGICLINKS.union(ResolveFlags::NO_SYMLINKS),
        }
    }
}

/// An open regular file and its metadata at opening.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    stat: Stat,
}

impl RegularFile {
    /// Opens the regular file at `path`, wherever it leads.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, links: Links) -> Result<Self, OpenError> {
        Self::open_in(CWD, path, links.resolve_flags())
    }

    pub(crate) fn open_in(dir: impl AsFd, path: &Path, resolve: ResolveFlags) -> Result<Self, OpenError> {
        let dir = dir.as_fd();
        let inspected = open_retrying(dir, path, OFlags::PATH, resolve)?;
        require_regular(&rustix::fs::fstat(&inspected)?)?;
        reject_pseudo_files(&inspected)?;
        // `NONBLOCK`: a pipe may have replaced the file meanwhile. The open must not wait; the pipe is refused
        // afterwards.
        let file = open_retrying(dir, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, resolve)?;
        reject_pseudo_files(&file)?;
        Self::from_open(file)
    }

    /// Wraps an open file, which must be a regular file. It must have been opened with `O_NONBLOCK`, if it may be
    /// anything else.
    ///
    /// # Errors
    /// `NotRegular`, and errors of the system.
    pub fn from_open(file: OwnedFd) -> Result<Self, OpenError> {
        let stat = rustix::fs::fstat(&file)?;
        require_regular(&stat)?;
        Ok(Self { file: file.into(), stat })
    }

    /// Its size in bytes when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        file_size(&self.stat)
    }

    /// Its metadata when it was opened.
    #[must_use]
    pub const fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Whether its owner may execute it.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        Mode::from_raw_mode(self.stat.st_mode).contains(Mode::XUSR)
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// The open file.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads the rest of the file; `None` if that is more than `limit` bytes, even if it grows meanwhile.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_all(&mut self, limit: u64) -> io::Result<Option<Vec<u8>>> {
        if self.size() > limit {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.size()).unwrap_or(0));
        (&mut self.file).take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
    }

    /// Whether size and modification time are still those at opening.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_unchanged(&self) -> Result<bool, Errno> {
        let version = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        Ok(version(&rustix::fs::fstat(&self.file)?) == version(&self.stat))
    }
}

/// Repeats a read that a signal interrupts.
impl io::Read for RegularFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// The first `max_bytes` of an open file. Its offset does not change.
///
/// # Errors
/// Those of the system.
pub fn read_head(file: &File, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut head = vec![0; max_bytes];
    let mut filled = 0;
    while let Some(rest) = head.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

fn require_regular(stat: &Stat) -> Result<(), OpenError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(OpenError::Link),
        _ => Err(OpenError::NotRegular),
    }
}

fn reject_pseudo_files(file: &OwnedFd) -> Result<(), OpenError> {
    let system = rustix::fs::fstatfs(file)?;
    #[expect(clippy::useless_conversion, reason = "the type differs between architectures")]
    match PSEUDO_FILE_SYSTEMS.contains(&i64::from(system.f_type)) {
        true => Err(OpenError::NotRegular),
        false => Ok(()),
    }
}

/// Opens a path beneath an open directory, in which the kernel resolves it. `CLOEXEC` is added to `flags`.
///
/// # Errors
/// `XDEV` when the path leads out, `LOOP` for a refused link or a loop of links, and others of the system.
pub fn open_beneath(dir: impl AsFd, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
    open_retrying(dir, path, flags, ResolveFlags::BENEATH | links.resolve_flags())
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when a storm of renames is over; the call blocks anyway"
)]
pub(crate) fn open_retrying(
    dir: impl AsFd,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    for race in 0..PATIENT_RACES {
        match rustix::fs::openat2(&dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if race < RACES => std::thread::yield_now(),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::XDEV => Self::EscapesRoot,
            Errno::LOOP => Self::Link,
            Errno::NXIO | Errno::NODEV | Errno::ISDIR => Self::NotRegular,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Self::NotFound(errno),
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied(errno),
            other => Self::Failed(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::DirHandle;

    #[test]
    fn only_regular_files_beneath_the_directory_are_opened() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("root/inner")).unwrap();
        fs::write(at("outside"), "secret").unwrap();
        fs::write(at("root/file"), "content").unwrap();
        for (target, link) in
            [("file", "link"), ("../outside", "out"), ("loop", "loop"), ("/proc/self/maps", "proc")]
        {
            symlink(target, at("root").join(link)).unwrap();
        }
        rustix::fs::mknodat(CWD, at("root/pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let root = DirHandle::open(&at("root")).unwrap();
        let mut file = root.open_file(Path::new("link"), Links::Followed).unwrap();
        assert_eq!((file.size(), file.is_executable()), (7, false));
        assert_eq!(read_head(file.file(), 3).unwrap(), b"con");
        assert_eq!(file.read_all(7).unwrap().unwrap(), b"content");
        for (path, links, error) in [
            ("link", Links::Refused, OpenError::Link),
            ("out", Links::Followed, OpenError::EscapesRoot),
            ("../outside", Links::Followed, OpenError::EscapesRoot),
            ("/proc/self/maps", Links::Followed, OpenError::EscapesRoot),
            ("proc", Links::Followed, OpenError::EscapesRoot),
            ("loop", Links::Followed, OpenError::Link),
            ("inner", Links::Followed, OpenError::NotRegular),
            ("pipe", Links::Followed, OpenError::NotRegular),
            ("none", Links::Followed, OpenError::NotFound(Errno::NOENT)),
        ] {
            assert_eq!(root.open_file(Path::new(path), links).unwrap_err(), error, "{path}");
        }
        assert_eq!(
            RegularFile::open(Path::new("/proc/self/maps"), Links::Followed).unwrap_err(),
            OpenError::NotRegular
        );
        assert_eq!(RegularFile::open(&at("root/link"), Links::Refused).unwrap_err(), OpenError::Link);
        assert!(RegularFile::open(&at("root/out"), Links::Followed).is_ok());
    }

    #[test]
    fn a_file_that_grows_is_noticed_and_not_read_beyond_the_limit() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut file = RegularFile::open(&path, Links::Refused).unwrap();
        assert!(file.is_unchanged().unwrap());
        fs::write(&path, "longer").unwrap();
        assert!(!file.is_unchanged().unwrap());
        assert_eq!(file.read_all(5).unwrap(), None);
    }
}
