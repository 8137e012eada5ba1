//! Reads values from the `stat` of a file.

use std::os::fd::AsFd;
use std::path::Path;

use conjure_base::{FileFingerprint, FileId, FileTime};
use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The size in bytes.
#[must_use]
pub fn file_size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Identity, size and times.
#[must_use]
pub fn fingerprint(stat: &Stat) -> FileFingerprint {
    let nanoseconds = |nanoseconds: u64| i64::try_from(nanoseconds).unwrap_or(0);
    FileFingerprint {
        id: FileId { device: stat.st_dev, inode: stat.st_ino },
        size: file_size(stat),
        modified: FileTime { seconds: stat.st_mtime, nanoseconds: nanoseconds(stat.st_mtime_nsec) },
        changed: FileTime { seconds: stat.st_ctime, nanoseconds: nanoseconds(stat.st_ctime_nsec) },
    }
}

/// The identity of an open file or directory.
///
/// # Errors
/// Those of `fstat`.
pub fn file_id(open: impl AsFd) -> Result<FileId, Errno> {
    let stat = rustix::fs::fstat(open)?;
    Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
}

/// The identity of the directory at `path`. A link at its end is not followed.
///
/// # Errors
/// `NOTDIR` or `LOOP` when it is no directory, and others of the system.
pub fn dir_id(path: &Path) -> Result<FileId, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    file_id(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}
