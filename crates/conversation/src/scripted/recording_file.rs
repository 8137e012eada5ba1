//! The file of a recording, and its atomic replacement.
//!
//! The staging file has a unique name, so it collides neither with a file of the user nor with another recorder. It is removed when the
//! rename fails. A crash before the rename leaves it behind.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use conjure_fs::StagedFile;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use super::error::ScriptError;

/// A file that is replaced atomically.
#[derive(Debug)]
pub(super) struct RecordingFile {
    dir: ParentDir,
    name: OsString,
}

#[derive(Debug)]
enum ParentDir {
    /// The directory that has this path at the time of writing.
    Path(PathBuf),
    /// An open directory, which may have been moved.
    Open(OwnedFd),
}

impl RecordingFile {
    /// The file at this path. A symbolic link is resolved.
    pub(super) fn at_path(path: &Path) -> Result<Self, ScriptError> {
        let refused = || ScriptError::NotAFile { path: path.to_owned() };
        // The link is resolved once, so that the file is replaced and not the link.
        let path = match fs::canonicalize(path) {
            Ok(target) if target.is_file() => target,
            Ok(_) => return Err(refused()),
            Err(_) => path.to_owned(),
        };
        let name = path.file_name().ok_or_else(refused)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(Self { dir: ParentDir::Path(parent.unwrap_or_else(|| Path::new(".")).to_owned()), name })
    }

    /// The file of this name in an open directory.
    pub(super) fn in_dir(dir: OwnedFd, name: &OsStr, display_path: &Path) -> Result<Self, ScriptError> {
        let is_a_name = Path::new(name).file_name() == Some(name);
        let found = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_other = found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile);
        if is_other || !is_a_name {
            return Err(ScriptError::NotAFile { path: display_path.to_owned() });
        }
        Ok(Self { dir: ParentDir::Open(dir), name: name.to_owned() })
    }

    /// Writes a staging file in the same directory, and renames it into place.
    pub(super) fn replace(&self, content: &[u8]) -> io::Result<()> {
        let opened;
        let dir = match &self.dir {
            ParentDir::Open(dir) => dir.as_fd(),
            ParentDir::Path(path) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
                opened.as_fd()
            }
        };
        // Its permissions follow the process's umask.
        let mut staged = StagedFile::create(dir, Mode::from_raw_mode(0o666))?;
        staged.write_all(content)?;
        staged.replace(self.name.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn an_open_directory_is_written_to_after_it_was_moved() {
        let temp = tempfile::tempdir().unwrap();
        let path_of = |name: &str| temp.path().join(name);
        for name in ["mine", "work"] {
            fs::create_dir(path_of(name)).unwrap();
        }
        fs::write(path_of("mine/run.json"), "mine").unwrap();
        let file_path = path_of("work/run.json");
        let file = RecordingFile::in_dir(open(&path_of("work")), OsStr::new("run.json"), &file_path).unwrap();
        file.replace(b"one").unwrap();
        assert_eq!(fs::read_to_string(&file_path).unwrap(), "one");
        fs::rename(path_of("work"), path_of("moved")).unwrap();
        symlink("mine", path_of("work")).unwrap();
        file.replace(b"two").unwrap();
        assert_eq!(fs::read_to_string(path_of("moved/run.json")).unwrap(), "two");
        assert_eq!(fs::read_to_string(path_of("mine/run.json")).unwrap(), "mine");
        // A link in its place is replaced, not followed.
        fs::remove_file(path_of("moved/run.json")).unwrap();
        symlink("../mine/run.json", path_of("moved/run.json")).unwrap();
        file.replace(b"three").unwrap();
        assert_eq!(fs::read_to_string(path_of("mine/run.json")).unwrap(), "mine");
        assert_eq!(fs::read_dir(path_of("moved")).unwrap().count(), 1);
    }

    #[test]
    fn a_recording_file_has_a_plain_name_and_is_not_a_link() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("file"), "").unwrap();
        symlink("file", temp.path().join("link.json")).unwrap();
        fs::create_dir(temp.path().join("directory.json")).unwrap();
        for name in ["link.json", "directory.json", "directory.json/x", "..", ""] {
            let file = RecordingFile::in_dir(open(temp.path()), OsStr::new(name), Path::new(name));
            assert!(matches!(file, Err(ScriptError::NotAFile { .. })), "{name}");
        }
    }
}
