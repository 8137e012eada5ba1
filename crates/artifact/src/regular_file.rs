//! Opens regular files, and nothing else, without blocking on pipes or touching devices.
//!
//! A path is first opened with `O_PATH` and inspected; only a regular file is then opened for reading. Beneath a [`DirHandle`] the
//! kernel resolves the path (`openat2`), so neither `..` nor a link leads out, even if a link is exchanged meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// How often a path is resolved again after the kernel gave up because of a concurrent rename.
const MAX_RACES: u32 = 10_000;

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
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The file does not exist.
    NotFound,
    /// It is a directory, a device, a pipe, a socket, or in a pseudo file system.
    NotRegular,
    /// The path leads out of the directory.
    EscapesRoot,
    /// The process may not read it.
    PermissionDenied,
    /// Another I/O error.
    Failed(io::Error),
}

/// Whether symbolic links are followed beneath a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkResolution {
    /// Links that stay beneath the directory are followed.
    Within,
    /// No link is followed.
    Refused,
}

/// An open directory, beneath which files are opened.
#[derive(Debug)]
pub(crate) struct DirHandle(OwnedFd);

/// An open regular file and its metadata at opening.
#[derive(Debug)]
pub(crate) struct RegularFile {
    file: File,
    stat: Stat,
}

impl DirHandle {
    /// Opens a directory by path; links are followed.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens a regular file beneath the directory.
    pub(crate) fn open_file(&self, relative: &Path, links: LinkResolution) -> Result<RegularFile, OpenError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let resolve = match links {
            LinkResolution::Within => resolve,
            LinkResolution::Refused => resolve | ResolveFlags::NO_SYMLINKS,
        };
        open_in(&self.0, relative, resolve)
    }

    pub(crate) const fn handle(&self) -> &OwnedFd {
        &self.0
    }
}

/// Wraps an open directory.
impl From<OwnedFd> for DirHandle {
    fn from(folder: OwnedFd) -> Self {
        Self(folder)
    }
}

/// Opens a regular file by path. Links are followed, except the magic links of `/proc`.
pub(crate) fn open_anywhere(path: &Path) -> Result<RegularFile, OpenError> {
    open_in(CWD, path, ResolveFlags::NO_MAGICLINKS)
}

fn open_in(folder: impl AsFd, path: &Path, resolve: ResolveFlags) -> Result<RegularFile, OpenError> {
    let folder = folder.as_fd();
    let inspected = retry_on_race(|| {
        rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
    })?;
    require_regular(&rustix::fs::fstat(&inspected)?)?;
    reject_pseudo_files(&inspected)?;
    // `NONBLOCK`: a pipe may have taken the name meanwhile.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = retry_on_race(|| rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve))?;
    // It may be another file by now.
    let stat = rustix::fs::fstat(&file)?;
    require_regular(&stat)?;
    reject_pseudo_files(&file)?;
    Ok(RegularFile { file: file.into(), stat })
}

fn require_regular(stat: &Stat) -> Result<(), OpenError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
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

fn retry_on_race(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    for _ in 0..MAX_RACES {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

impl RegularFile {
    /// Its size in bytes when it was opened.
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    pub(crate) const fn stat(&self) -> &Stat {
        &self.stat
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// The first bytes, for media type detection. The file offset does not change.
    pub(crate) fn head(&self) -> io::Result<Vec<u8>> {
        read_head(&self.file)
    }
}

/// The first bytes of an open file, for media type detection.
pub(crate) fn read_head(file: &File) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;

    let mut head = vec![0; crate::media::HEAD_BYTES];
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

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Self::NotFound,
            Errno::XDEV => Self::EscapesRoot,
            // A refused link, a magic link of `/proc`, or a loop of links.
            Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::ISDIR => Self::NotRegular,
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            other => Self::Failed(other.into()),
        }
    }
}
