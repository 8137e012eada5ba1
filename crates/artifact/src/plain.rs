//! Opening plain files, and nothing else, without waiting for anything.
//!
//! A path is first opened without access (`O_PATH`), looked at, and only then opened for reading: a pipe is not waited for, and no
//! device notices. Beneath a folder's handle it is the kernel that resolves (`openat2`), so neither `..` nor a link leads out of it,
//! not even one that is exchanged meanwhile. It owns no state but the open files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// So often a path is resolved again that the kernel gave up because something on the machine was renamed meanwhile.
const RACES: u32 = 10_000;

/// The kernel's own file systems, whose files are no files: what is read is made while it is read, of this process or for it.
const KERNELS_OWN: [i64; 16] = [
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
pub(crate) enum Unopened {
    /// There is none.
    NotFound,
    /// It is a folder, a device, a pipe, a socket, or no file but the kernel's word.
    NotPlain,
    /// It leads out of where it must stay.
    LeadsOut,
    /// It may not be read.
    Denied,
    /// Something else.
    Failed(io::Error),
}

/// Which links are followed beneath a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Those that stay beneath it.
    Within,
    /// None.
    Refused,
}

/// A folder, open, beneath which files are opened.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// An open plain file, and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct PlainFile {
    file: File,
    stat: Stat,
}

impl Folder {
    /// Opens a folder by its path, through links if it leads through some.
    pub(crate) fn open(path: &Path) -> Result<Self, Unopened> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens a plain file beneath it.
    pub(crate) fn open_file(&self, relative: &Path, links: Links) -> Result<PlainFile, Unopened> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let resolve = match links {
            Links::Within => resolve,
            Links::Refused => resolve | ResolveFlags::NO_SYMLINKS,
        };
        open_in(&self.0, relative, resolve)
    }

    pub(crate) const fn handle(&self) -> &OwnedFd {
        &self.0
    }
}

/// One that is open already.
impl From<OwnedFd> for Folder {
    fn from(folder: OwnedFd) -> Self {
        Self(folder)
    }
}

/// Opens the plain file that a path leads to, through links, but for those of `/proc` that lead into a process.
pub(crate) fn open_anywhere(path: &Path) -> Result<PlainFile, Unopened> {
    open_in(CWD, path, ResolveFlags::NO_MAGICLINKS)
}

fn open_in(folder: impl AsFd, path: &Path, resolve: ResolveFlags) -> Result<PlainFile, Unopened> {
    let folder = folder.as_fd();
    let looked_at = patiently(|| {
        rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
    })?;
    require_plain(&rustix::fs::fstat(&looked_at)?)?;
    require_no_word_of_the_kernel(&looked_at)?;
    // Should a pipe have its name by now, it is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = patiently(|| rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve))?;
    // It may be another one by now.
    let stat = rustix::fs::fstat(&file)?;
    require_plain(&stat)?;
    require_no_word_of_the_kernel(&file)?;
    Ok(PlainFile { file: file.into(), stat })
}

fn require_plain(stat: &Stat) -> Result<(), Unopened> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(Unopened::NotPlain),
    }
}

fn require_no_word_of_the_kernel(file: &OwnedFd) -> Result<(), Unopened> {
    let system = rustix::fs::fstatfs(file)?;
    #[expect(clippy::useless_conversion, reason = "the type differs between architectures")]
    match KERNELS_OWN.contains(&i64::from(system.f_type)) {
        true => Err(Unopened::NotPlain),
        false => Ok(()),
    }
}

fn patiently(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    for _ in 0..RACES {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

impl PlainFile {
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

    /// Its first bytes, as many as say what it is; the place to read on is left where it was.
    pub(crate) fn head(&self) -> io::Result<Vec<u8>> {
        head_of(&self.file)
    }
}

/// The first bytes of an open file, as many as say what it is.
pub(crate) fn head_of(file: &File) -> io::Result<Vec<u8>> {
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

impl From<Errno> for Unopened {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Self::NotFound,
            Errno::XDEV => Self::LeadsOut,
            // A link where none is followed, one of `/proc` into a process, or a circle of them.
            Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::ISDIR => Self::NotPlain,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            other => Self::Failed(other.into()),
        }
    }
}
