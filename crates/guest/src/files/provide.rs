//! Putting what the host sends onto a shelf: put together where commands do not look, and shown by one rename. Taking it off again
//! is the same backwards.
//!
//! State: a draft, a folder beside the shelves. A failure, a cut or a crash of the guest before the rename removes it, except
//! when the worker is killed in the middle; then it goes with the sandbox.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use conjure_guest::protocol::{
    ErrorCode, GuestError, PARCEL_HEAD_LEN, ParcelKind, ParcelMode, ParcelStart, Reply,
};

use super::worker::{PIECE, failed};
use crate::error::{self, of_file};
use crate::sys;

const DOING: &str = "provide";

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Permission bits of folders and of files on a shelf.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
const PLAIN: Mode = Mode::from_raw_mode(0o444);
const EXECUTABLE: Mode = Mode::from_raw_mode(0o555);

/// Where a parcel goes, and what it becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label<'a> {
    pub(super) shelf: &'a str,
    pub(super) name: &'a str,
    pub(super) kind: ParcelKind,
}

/// Puts the parcel of `input` onto a shelf of the folder `shelves`.
pub(super) fn provide(
    shelves: &OwnedFd,
    label: &Label<'_>,
    input: &mut impl Read,
) -> Result<Reply, GuestError> {
    let Label { shelf, name, kind } = *label;
    check_name(shelf)?;
    check_name(name)?;
    let to = rustix::fs::openat(shelves, shelf, FOLDER, Mode::empty())
        .map_err(|errno| of_file(errno, shelf, "open the shelf"))?;
    // What is known to fail need not be put together first.
    if rustix::fs::statat(&to, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(taken(name));
    }
    let draft = Draft::make(shelves, name)?;
    let (files, bytes) = draft.fill(&mut Pieces { input, left: 0, is_over: false }, kind)?;
    if sys::is_termination_pending() {
        return Err(cut_off(name));
    }
    let moved = match kind {
        ParcelKind::Folder => move_new(shelves, &draft.name, &to, name, FileType::Directory),
        ParcelKind::File => move_new(&draft.folder, name, &to, name, FileType::RegularFile),
    };
    moved.map_err(|errno| match errno {
        Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => taken(name),
        other => of_file(other, name, DOING),
    })?;
    Ok(Reply::Provide { files, bytes })
}

/// Takes what has this name off a shelf of the folder `shelves`.
pub(super) fn withdraw(shelves: &OwnedFd, shelf: &str, name: &str) -> Result<Reply, GuestError> {
    check_name(shelf)?;
    check_name(name)?;
    let refused = |errno| of_file(errno, name, "withdraw");
    let from = rustix::fs::openat(shelves, shelf, FOLDER, Mode::empty())
        .map_err(|errno| of_file(errno, shelf, "open the shelf"))?;
    let found = match rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Reply::Withdraw { was_there: false }),
        other => FileType::from_raw_mode(other.map_err(refused)?.st_mode),
    };
    if found == FileType::Directory {
        let grave = Draft::make(shelves, name)?;
        // Out of sight as a whole; what lies in it goes with the draft.
        rustix::fs::renameat(&from, name, &grave.folder, name).map_err(refused)?;
    } else {
        rustix::fs::unlinkat(&from, name, AtFlags::empty()).map_err(refused)?;
    }
    Ok(Reply::Withdraw { was_there: true })
}

/// A folder beside the shelves. Dropping it removes it, with all that is in it, if it is still there.
#[derive(Debug)]
struct Draft<'a> {
    shelves: &'a OwnedFd,
    name: String,
    folder: OwnedFd,
    /// What is put together, for messages.
    what: &'a str,
}

impl<'a> Draft<'a> {
    fn make(shelves: &'a OwnedFd, what: &'a str) -> Result<Self, GuestError> {
        let refuse = |errno| of_file(errno, what, DOING);
        // No two workers that live have one number; what a killed one left is in the way of nobody who tries on.
        let own = rustix::process::getpid().as_raw_nonzero();
        for attempt in 0..100 {
            let name = format!(".draft-{own}-{attempt}");
            match make_folder(shelves.as_fd(), OsStr::new(&name)) {
                Ok(folder) => return Ok(Self { shelves, name, folder, what }),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(refuse(errno)),
            }
        }
        Err(refuse(Errno::EXIST))
    }

    /// Puts all files of a parcel there. How many, and their bytes.
    fn fill(&self, parcel: &mut Pieces<'_, impl Read>, kind: ParcelKind) -> Result<(u64, u64), GuestError> {
        let broken = |_| cut_off(self.what);
        let (mut files, mut bytes) = (0_u64, 0_u64);
        loop {
            let mut head = [0; PARCEL_HEAD_LEN];
            parcel.read_exact(&mut head).map_err(broken)?;
            let (path_len, size, mode) = match ParcelStart::decode(head).ok_or_else(|| nonsense(self.what))? {
                ParcelStart::File { path_len, size, mode } => (path_len, size, mode),
                ParcelStart::End => break,
            };
            let mut path = vec![0; path_len];
            parcel.read_exact(&mut path).map_err(broken)?;
            let path = Path::new(OsStr::from_bytes(&path));
            let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            let is_the_one = kind == ParcelKind::Folder || (files == 0 && path == Path::new(self.what));
            if !is_plain || !is_the_one {
                return Err(nonsense(self.what));
            }
            self.file(path, size, mode, parcel)?;
            files += 1;
            bytes = bytes.saturating_add(size);
        }
        // The host sends its true end only when all of it is still wanted.
        if parcel.read(&mut [0]).map_err(broken)? != 0 || (kind == ParcelKind::File && files == 0) {
            return Err(nonsense(self.what));
        }
        Ok((files, bytes))
    }

    fn file(
        &self,
        path: &Path,
        size: u64,
        mode: ParcelMode,
        parcel: &mut Pieces<'_, impl Read>,
    ) -> Result<(), GuestError> {
        let refuse = |errno| of_file(errno, &path.to_string_lossy(), DOING);
        let parent = self.folders(path.parent().unwrap_or(Path::new(""))).map_err(refuse)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = path.file_name().unwrap_or_default();
        let file = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(refuse)?;
        let mut file = File::from(file);
        let mut buffer = vec![0; PIECE];
        let mut left = size;
        while left > 0 {
            if sys::is_termination_pending() {
                return Err(cut_off(self.what));
            }
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let Some(room) = buffer.get_mut(..most) else { break };
            let length = match parcel.read(room) {
                Ok(0) | Err(_) => return Err(cut_off(self.what)),
                Ok(length) => length,
            };
            let piece = buffer.get(..length).unwrap_or_default();
            file.write_all(piece).map_err(|error| failed(&error, &path.to_string_lossy(), DOING))?;
            left -= length as u64;
        }
        let mode = match mode {
            ParcelMode::Plain => PLAIN,
            ParcelMode::Executable => EXECUTABLE,
        };
        rustix::fs::fchmod(&file, mode).map_err(refuse)
    }

    /// The folder at this path in the draft, with what is missing of it made, through no link.
    fn folders(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let mut folder = rustix::fs::openat(&self.folder, ".", FOLDER, Mode::empty())?;
        for part in path.components() {
            let name = part.as_os_str();
            folder = match rustix::fs::openat(&folder, name, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) => make_folder(folder.as_fd(), name)?,
                other => other?,
            };
        }
        Ok(folder)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        remove(self.shelves, OsStr::new(&self.name));
    }
}

/// Makes a folder and opens it.
fn make_folder(above: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(&above, name, Mode::RWXU)?;
    // Whatever mask of new files' modes the process has.
    rustix::fs::chmodat(&above, name, FOLDER_MODE, AtFlags::empty())?;
    rustix::fs::openat(&above, name, FOLDER, Mode::empty())
}

/// Removes a folder and what is in it, as far as it goes. A folder is as deep as a path of the host's.
fn remove(above: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::openat(above, name, flags, Mode::empty()) else { return };
    let names: Vec<_> = Dir::read_from(&folder)
        .map(|entries| entries.flatten().map(|entry| entry.file_name().to_owned()).collect())
        .unwrap_or_default();
    for inner in names.iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
        if rustix::fs::unlinkat(&folder, inner, AtFlags::empty()) == Err(Errno::ISDIR) {
            remove(&folder, OsStr::from_bytes(inner.to_bytes()));
        }
    }
    let _ = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR);
}

/// Gives it a name in another folder that is not taken.
fn move_new(from: &OwnedFd, name: &str, to: &OwnedFd, new: &str, what: FileType) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // The file system does not know the flag. Then no file, and only an empty folder is replaced.
        Err(Errno::INVAL | Errno::NOSYS) if what == FileType::RegularFile => {
            rustix::fs::linkat(from, name, to, new, AtFlags::empty())
        }
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(from, name, to, new),
        other => other,
    }
}

/// What becomes a name must be one.
fn check_name(name: &str) -> Result<(), GuestError> {
    if !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0']) {
        return Ok(());
    }
    Err(error::error(ErrorCode::BadRequest, format!("`{name}` cannot be the name of a file or folder")))
}

fn taken(name: &str) -> GuestError {
    let message = format!("the sandbox has a `{name}` already, which stays as it is");
    error::error(ErrorCode::Exists, message)
}

fn cut_off(name: &str) -> GuestError {
    let message = format!("cannot provide `{name}`: the content was cut off; nothing of it is there");
    error::error(ErrorCode::Cancelled, message)
}

fn nonsense(name: &str) -> GuestError {
    let message = format!("cannot provide `{name}`: what was sent is no parcel of that kind");
    error::error(ErrorCode::BadRequest, message)
}

/// Content that comes in pieces, each after its length, as one stream. Its end is the true one, or an error.
struct Pieces<'a, R> {
    input: &'a mut R,
    /// What is left of the piece that is being read.
    left: usize,
    is_over: bool,
}

impl<R: Read> Read for Pieces<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.is_over {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            self.left = usize::try_from(u32::from_le_bytes(length)).unwrap_or(0);
            self.is_over = self.left == 0;
        }
        if self.is_over {
            return Ok(0);
        }
        let most = buffer.len().min(self.left);
        let length = self.input.read(buffer.get_mut(..most).unwrap_or_default())?;
        if length == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= length;
        Ok(length)
    }
}
