//! Where a recording lies, and how it is replaced by a longer one.
//!
//! The new file has a name that nobody else has: neither a file of the user's nor one that another recorder of the same path is
//! writing. It goes when it cannot take its place; a crash in between leaves it behind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::ScriptError;

/// How many names are tried: only leftovers, and who writes to the same folder now, are in the way.
const ATTEMPTS: u32 = 1000;

/// A file that is replaced as a whole.
#[derive(Debug)]
pub(super) struct RecordingFile {
    folder: Folder,
    name: OsString,
}

#[derive(Debug)]
enum Folder {
    /// The one that has this path whenever it is written to.
    At(PathBuf),
    /// This one, wherever it is by then.
    Open(OwnedFd),
}

impl RecordingFile {
    /// The file of this path, behind a link.
    pub(super) fn of(path: &Path) -> Result<Self, ScriptError> {
        let refused = || ScriptError::NotAFile { path: path.to_owned() };
        // A link is followed once, so that the file is replaced and not the link.
        let path = match fs::canonicalize(path) {
            Ok(target) if target.is_file() => target,
            Ok(_) => return Err(refused()),
            Err(_) => path.to_owned(),
        };
        let name = path.file_name().ok_or_else(refused)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(Self { folder: Folder::At(parent.unwrap_or_else(|| Path::new(".")).to_owned()), name })
    }

    /// The file of this name in an open folder.
    pub(super) fn within(folder: OwnedFd, name: &OsStr, told: &Path) -> Result<Self, ScriptError> {
        let is_a_name = Path::new(name).file_name() == Some(name);
        let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_other = found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile);
        if is_other || !is_a_name {
            return Err(ScriptError::NotAFile { path: told.to_owned() });
        }
        Ok(Self { folder: Folder::Open(folder), name: name.to_owned() })
    }

    /// Writes a new file beside it, and renames that into place.
    pub(super) fn replace(&self, content: &[u8]) -> io::Result<()> {
        let opened;
        let folder = match &self.folder {
            Folder::Open(folder) => folder.as_fd(),
            Folder::At(path) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
                opened.as_fd()
            }
        };
        let (draft, mut file) = draft(folder)?;
        let written = file.write_all(content);
        let replaced = written
            .and_then(|()| Ok(rustix::fs::renameat(folder, draft.as_str(), folder, self.name.as_os_str())?));
        if replaced.is_err() {
            let _ = rustix::fs::unlinkat(folder, draft.as_str(), AtFlags::empty());
        }
        replaced
    }
}

/// A new file, and its name. It has the permissions of any new file: those that the process's mask leaves.
fn draft(folder: BorrowedFd<'_>) -> io::Result<(String, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for attempt in 0..ATTEMPTS {
        let name = format!(".recording-{}-{attempt}.partial", std::process::id());
        match rustix::fs::openat(folder, name.as_str(), flags, Mode::from_raw_mode(0o666)) {
            Err(Errno::EXIST) => {}
            made => return Ok((name, made?.into())),
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn what_was_opened_is_written_to_wherever_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for name in ["mine", "work"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("mine/run.json"), "mine").unwrap();
        let told = at("work/run.json");
        let place = RecordingFile::within(open(&at("work")), OsStr::new("run.json"), &told).unwrap();
        place.replace(b"one").unwrap();
        assert_eq!(fs::read_to_string(&told).unwrap(), "one");
        fs::rename(at("work"), at("moved")).unwrap();
        symlink("mine", at("work")).unwrap();
        place.replace(b"two").unwrap();
        assert_eq!(fs::read_to_string(at("moved/run.json")).unwrap(), "two");
        assert_eq!(fs::read_to_string(at("mine/run.json")).unwrap(), "mine");
        // A link in its place is replaced, not followed.
        fs::remove_file(at("moved/run.json")).unwrap();
        symlink("../mine/run.json", at("moved/run.json")).unwrap();
        place.replace(b"three").unwrap();
        assert_eq!(fs::read_to_string(at("mine/run.json")).unwrap(), "mine");
        assert_eq!(fs::read_dir(at("moved")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_in_an_open_folder_has_a_plain_name_and_is_no_link() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("file"), "").unwrap();
        symlink("file", temp.path().join("link.json")).unwrap();
        fs::create_dir(temp.path().join("folder.json")).unwrap();
        for name in ["link.json", "folder.json", "folder.json/x", "..", ""] {
            let place = RecordingFile::within(open(temp.path()), OsStr::new(name), Path::new(name));
            assert!(matches!(place, Err(ScriptError::NotAFile { .. })), "{name}");
        }
    }
}
