//! Installs and removes content. New content is prepared in a staging directory that commands do not read, and
//! appears by one rename. A removal first renames the content into a staging directory.
//!
//! State: a staging directory beside the content directories. It is removed after a failure, an abort or a crash
//! of the guest. Only when the worker itself is killed does it remain, until the sandbox is removed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use conjure_guest::protocol::{
    ARCHIVE_HEADER_LEN, ArchiveHeaderStart, ArchiveKind, ErrorCode, FileMode, GuestError, Reply,
};

use super::io::{CHUNK_LEN, io_failure};
use crate::error::{self, file_error};
use crate::sys;

const DOING: &str = "install";

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Permission bits of installed directories and files.
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);
const READ_ONLY: Mode = Mode::from_raw_mode(0o444);
const EXECUTABLE: Mode = Mode::from_raw_mode(0o555);

/// Where content is installed, and what the archive becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContentLabel<'a> {
    pub(super) content_dir: &'a str,
    pub(super) name: &'a str,
    pub(super) kind: ArchiveKind,
}

/// Installs the archive from `input` in a content directory.
pub(super) fn install(
    content_root: &OwnedFd,
    label: &ContentLabel<'_>,
    input: &mut impl Read,
) -> Result<Reply, GuestError> {
    let ContentLabel { content_dir, name, kind } = *label;
    check_name(content_dir)?;
    check_name(name)?;
    let to = rustix::fs::openat(content_root, content_dir, DIR, Mode::empty())
        .map_err(|errno| file_error(errno, content_dir, "open the content directory"))?;
    // Fail early if the name is taken.
    if rustix::fs::statat(&to, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(exists_error(name));
    }
    let staging = StagingDir::make(content_root, name)?;
    let (files, bytes) = staging.fill(&mut ChunkReader { input, remaining: 0, is_ended: false }, kind)?;
    if sys::is_termination_pending() {
        return Err(truncated_error(name));
    }
    let moved = match kind {
        ArchiveKind::Dir => move_new(content_root, &staging.name, &to, name, FileType::Directory),
        ArchiveKind::File => move_new(&staging.dir, name, &to, name, FileType::RegularFile),
    };
    moved.map_err(|errno| match errno {
        Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => exists_error(name),
        other => file_error(other, name, DOING),
    })?;
    Ok(Reply::Install { files, bytes })
}

/// Removes the entry of this name from a content directory.
pub(super) fn remove_content(
    content_root: &OwnedFd,
    content_dir: &str,
    name: &str,
) -> Result<Reply, GuestError> {
    check_name(content_dir)?;
    check_name(name)?;
    let refused = |errno| file_error(errno, name, "remove");
    let from = rustix::fs::openat(content_root, content_dir, DIR, Mode::empty())
        .map_err(|errno| file_error(errno, content_dir, "open the content directory"))?;
    let found = match rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Reply::Remove { existed: false }),
        other => FileType::from_raw_mode(other.map_err(refused)?.st_mode),
    };
    if found == FileType::Directory {
        let staging = StagingDir::make(content_root, name)?;
        // The rename hides all of it at once. Dropping the staging directory removes it.
        rustix::fs::renameat(&from, name, &staging.dir, name).map_err(refused)?;
    } else {
        rustix::fs::unlinkat(&from, name, AtFlags::empty()).map_err(refused)?;
    }
    Ok(Reply::Remove { existed: true })
}

/// A staging directory beside the content directories. Dropping it removes it with its contents.
#[derive(Debug)]
struct StagingDir<'a> {
    content_root: &'a OwnedFd,
    name: String,
    dir: OwnedFd,
    /// The name of the content, for messages.
    what: &'a str,
}

impl<'a> StagingDir<'a> {
    fn make(content_root: &'a OwnedFd, what: &'a str) -> Result<Self, GuestError> {
        let refuse = |errno| file_error(errno, what, DOING);
        // No two living workers have the same pid. A killed worker may have left a directory of this name; then the
        // loop tries the next name.
        let own = rustix::process::getpid().as_raw_nonzero();
        for attempt in 0..100 {
            let name = format!(".draft-{own}-{attempt}");
            match make_dir(content_root.as_fd(), OsStr::new(&name)) {
                Ok(dir) => return Ok(Self { content_root, name, dir, what }),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(refuse(errno)),
            }
        }
        Err(refuse(Errno::EXIST))
    }

    /// Extracts all files of an archive. Returns their number and total size.
    fn fill(
        &self,
        archive: &mut ChunkReader<'_, impl Read>,
        kind: ArchiveKind,
    ) -> Result<(u64, u64), GuestError> {
        let truncated = |_| truncated_error(self.what);
        let (mut files, mut bytes) = (0_u64, 0_u64);
        loop {
            let mut head = [0; ARCHIVE_HEADER_LEN];
            archive.read_exact(&mut head).map_err(truncated)?;
            let (path_len, size, mode) =
                match ArchiveHeaderStart::decode(head).ok_or_else(|| malformed(self.what))? {
                    ArchiveHeaderStart::File { path_len, size, mode } => (path_len, size, mode),
                    ArchiveHeaderStart::End => break,
                };
            let mut path = vec![0; path_len];
            archive.read_exact(&mut path).map_err(truncated)?;
            let path = Path::new(OsStr::from_bytes(&path));
            let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            let is_the_one = kind == ArchiveKind::Dir || (files == 0 && path == Path::new(self.what));
            if !is_plain || !is_the_one {
                return Err(malformed(self.what));
            }
            self.file(path, size, mode, archive)?;
            files += 1;
            bytes = bytes.saturating_add(size);
        }
        // The host sends the end mark only while it still wants the content.
        if archive.read(&mut [0]).map_err(truncated)? != 0 || (kind == ArchiveKind::File && files == 0) {
            return Err(malformed(self.what));
        }
        Ok((files, bytes))
    }

    fn file(
        &self,
        path: &Path,
        size: u64,
        mode: FileMode,
        archive: &mut ChunkReader<'_, impl Read>,
    ) -> Result<(), GuestError> {
        let refuse = |errno| file_error(errno, &path.to_string_lossy(), DOING);
        let parent = self.dirs(path.parent().unwrap_or(Path::new(""))).map_err(refuse)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = path.file_name().unwrap_or_default();
        let file = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(refuse)?;
        let mut file = File::from(file);
        let mut buffer = vec![0; CHUNK_LEN];
        let mut remaining = size;
        while remaining > 0 {
            if sys::is_termination_pending() {
                return Err(truncated_error(self.what));
            }
            let max = usize::try_from(remaining).unwrap_or(CHUNK_LEN).min(CHUNK_LEN);
            let Some(room) = buffer.get_mut(..max) else { break };
            let length = match archive.read(room) {
                Ok(0) | Err(_) => return Err(truncated_error(self.what)),
                Ok(length) => length,
            };
            let piece = buffer.get(..length).unwrap_or_default();
            file.write_all(piece).map_err(|error| io_failure(&error, &path.to_string_lossy(), DOING))?;
            remaining -= length as u64;
        }
        let mode = match mode {
            FileMode::Plain => READ_ONLY,
            FileMode::Executable => EXECUTABLE,
        };
        rustix::fs::fchmod(&file, mode).map_err(refuse)
    }

    /// Opens the directory at this path in the staging directory. Creates missing directories, and follows no links.
    fn dirs(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let mut dir = rustix::fs::openat(&self.dir, ".", DIR, Mode::empty())?;
        for part in path.components() {
            let name = part.as_os_str();
            dir = match rustix::fs::openat(&dir, name, DIR, Mode::empty()) {
                Err(Errno::NOENT) => make_dir(dir.as_fd(), name)?,
                other => other?,
            };
        }
        Ok(dir)
    }
}

impl Drop for StagingDir<'_> {
    fn drop(&mut self) {
        remove(self.content_root, OsStr::new(&self.name));
    }
}

/// Creates a directory and opens it.
fn make_dir(above: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(&above, name, Mode::RWXU)?;
    // Independent of the process's umask.
    rustix::fs::chmodat(&above, name, DIR_MODE, AtFlags::empty())?;
    rustix::fs::openat(&above, name, DIR, Mode::empty())
}

/// Removes a directory with its contents, as far as possible. Paths from the host bound the depth.
fn remove(above: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::openat(above, name, flags, Mode::empty()) else { return };
    let names: Vec<_> = Dir::read_from(&dir)
        .map(|entries| entries.flatten().map(|entry| entry.file_name().to_owned()).collect())
        .unwrap_or_default();
    for inner in names.iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
        if rustix::fs::unlinkat(&dir, inner, AtFlags::empty()) == Err(Errno::ISDIR) {
            remove(&dir, OsStr::from_bytes(inner.to_bytes()));
        }
    }
    let _ = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR);
}

/// Renames to a new name that must not exist.
fn move_new(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str, what: FileType) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // The file system does not support the flag. A link never replaces a file, and a rename replaces only an
        // empty directory.
        Err(Errno::INVAL | Errno::NOSYS) if what == FileType::RegularFile => {
            rustix::fs::linkat(from, name, to, new, AtFlags::empty())
        }
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(from, name, to, new),
        other => other,
    }
}

/// Checks that a name is a single path component.
fn check_name(name: &str) -> Result<(), GuestError> {
    if !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0']) {
        return Ok(());
    }
    Err(error::error(ErrorCode::BadRequest, format!("`{name}` cannot be the name of a file or directory")))
}

fn exists_error(name: &str) -> GuestError {
    let message = format!("the sandbox already has `{name}`, which was not changed");
    error::error(ErrorCode::Exists, message)
}

fn truncated_error(name: &str) -> GuestError {
    let message = format!("cannot install `{name}`: the content was cut off; nothing was installed");
    error::error(ErrorCode::Cancelled, message)
}

fn malformed(name: &str) -> GuestError {
    let message =
        format!("cannot install `{name}`: the content is not a valid archive of the requested kind");
    error::error(ErrorCode::BadRequest, message)
}

/// Reads content that arrives in chunks, each after its length, as one stream. It ends at the end mark; a
/// truncated stream is an error.
struct ChunkReader<'a, R> {
    input: &'a mut R,
    /// The remaining bytes of the current chunk.
    remaining: usize,
    is_ended: bool,
}

impl<R: Read> Read for ChunkReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 && !self.is_ended {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            self.remaining = usize::try_from(u32::from_le_bytes(length)).unwrap_or(0);
            self.is_ended = self.remaining == 0;
        }
        if self.is_ended {
            return Ok(0);
        }
        let max = buffer.len().min(self.remaining);
        let length = self.input.read(buffer.get_mut(..max).unwrap_or_default())?;
        if length == 0 && max > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining -= length;
        Ok(length)
    }
}
