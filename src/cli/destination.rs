//! Where the command writes what the user named on its command line: a folder, or a file in one.
//!
//! A tool may put a link wherever it may write, also in the moment before the command writes there. So the path is resolved once,
//! component by component, and everything is written beneath the handle that comes of it. A link is followed where only people put
//! one, and refused in the folders that tools write to ([`ToolFolders`]).
//!
//! State: none but the open folders.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

/// A folder as it stands there itself; no link.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whatever stands there itself.
const ANYTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How many links a path may lead through, as with the kernel.
const MOST_LINKS: usize = 40;

/// Folders that tools may write to, with all that lies beneath them.
#[derive(Debug, Default)]
pub(crate) struct ToolFolders {
    /// Their devices and inodes.
    ids: Vec<(u64, u64)>,
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) handle: OwnedFd,
    /// Its path when it was opened, without links; for messages.
    pub(crate) path: PathBuf,
}

/// Why a place cannot be written to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DestinationError {
    /// A tool may have put it there.
    #[error("`{}` is a link in a folder that tools write to, so it is not followed; name the folder that is meant", at.display())]
    Link {
        /// The link.
        at: PathBuf,
    },
    /// The system said no.
    #[error("`{}` cannot be used: {source}", at.display())]
    Failed {
        /// What was looked at.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ToolFolders {
    /// Those of these paths that are there.
    pub(crate) fn of<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        let ids = paths.into_iter().filter_map(|path| rustix::fs::stat(path).ok());
        Self { ids: ids.map(|stat| (stat.st_dev, stat.st_ino)).collect() }
    }

    fn has(&self, folder: &OwnedFd) -> Result<bool, Errno> {
        let stat = fstat(folder)?;
        Ok(self.ids.contains(&(stat.st_dev, stat.st_ino)))
    }
}

/// Opens a folder, which is made where it is missing. Blocks.
pub(crate) fn folder(path: &Path, tools: &ToolFolders) -> Result<Folder, DestinationError> {
    let mut walk = Walk::of(path, tools)?;
    while let Some(name) = walk.next() {
        match walk.look(&name)? {
            Found::Folder(handle) => walk.enter(&name, handle)?,
            Found::Link(target) => walk.follow(&name, &target)?,
            Found::Nothing => walk.make(&name)?,
            Found::Other => return Err(walk.failed(&name, Errno::NOTDIR)),
        }
    }
    Ok(walk.into_folder())
}

/// Opens the folder in which a file lies or is to lie; its name there, behind links. What stands there is no link. Blocks.
pub(crate) fn file(path: &Path, tools: &ToolFolders) -> Result<(Folder, OsString), DestinationError> {
    let mut walk = Walk::of(path, tools)?;
    while let Some(name) = walk.next() {
        let is_last = walk.pending.is_empty();
        match walk.look(&name)? {
            Found::Link(target) => walk.follow(&name, &target)?,
            _ if is_last => return Ok((walk.into_folder(), name)),
            Found::Folder(handle) => walk.enter(&name, handle)?,
            Found::Nothing => return Err(walk.failed(&name, Errno::NOENT)),
            Found::Other => return Err(walk.failed(&name, Errno::NOTDIR)),
        }
    }
    Err(DestinationError::Failed { at: path.to_owned(), source: Errno::ISDIR.into() })
}

/// What has a name.
enum Found {
    Folder(OwnedFd),
    Link(PathBuf),
    Nothing,
    Other,
}

/// A path on the way from the root to its end.
struct Walk<'t> {
    tools: &'t ToolFolders,
    root: Step,
    /// The folders from the root on. `..` goes back in here: what is above a folder may have changed meanwhile.
    steps: Vec<Step>,
    pending: VecDeque<OsString>,
    links: usize,
}

struct Step {
    folder: Folder,
    writer: Writer,
}

/// Who may have put what lies in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    People,
    Tools,
}

impl<'t> Walk<'t> {
    fn of(path: &Path, tools: &'t ToolFolders) -> Result<Self, DestinationError> {
        let failed = |source: io::Error| DestinationError::Failed { at: path.to_owned(), source };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let handle = rustix::fs::open("/", FOLDER, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let writer = writer_in(tools, &handle, Writer::People).map_err(|errno| failed(errno.into()))?;
        let root = Step { folder: Folder { handle, path: PathBuf::from("/") }, writer };
        let mut walk = Self { tools, root, steps: Vec::new(), pending: VecDeque::new(), links: 0 };
        walk.go_on_with(&absolute);
        Ok(walk)
    }

    fn here(&self) -> &Step {
        self.steps.last().unwrap_or(&self.root)
    }

    /// The next name to look at.
    fn next(&mut self) -> Option<OsString> {
        while let Some(name) = self.pending.pop_front() {
            if name != ".." {
                return Some(name);
            }
            self.steps.pop();
        }
        None
    }

    fn look(&self, name: &OsStr) -> Result<Found, DestinationError> {
        let here = &self.here().folder.handle;
        let looked = match rustix::fs::openat(here, name, FOLDER, Mode::empty()) {
            Ok(handle) => return Ok(Found::Folder(handle)),
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(Errno::NOTDIR | Errno::LOOP) => rustix::fs::openat(here, name, ANYTHING, Mode::empty()),
            Err(errno) => Err(errno),
        };
        let target = looked.and_then(|found| {
            let is_link = FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink;
            is_link.then(|| rustix::fs::readlinkat(&found, "", Vec::new())).transpose()
        });
        match target {
            Ok(Some(target)) => Ok(Found::Link(OsString::from_vec(target.into_bytes()).into())),
            Ok(None) => Ok(Found::Other),
            Err(Errno::NOENT) => Ok(Found::Nothing),
            Err(errno) => Err(self.failed(name, errno)),
        }
    }

    fn enter(&mut self, name: &OsStr, handle: OwnedFd) -> Result<(), DestinationError> {
        let writer = writer_in(self.tools, &handle, self.here().writer);
        let writer = writer.map_err(|errno| self.failed(name, errno))?;
        let path = self.here().folder.path.join(name);
        self.steps.push(Step { folder: Folder { handle, path }, writer });
        Ok(())
    }

    fn make(&mut self, name: &OsStr) -> Result<(), DestinationError> {
        let here = &self.here().folder.handle;
        let made = match rustix::fs::mkdirat(here, name, Mode::from_raw_mode(0o777)) {
            // Somebody else was faster.
            Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(here, name, FOLDER, Mode::empty()),
            Err(errno) => Err(errno),
        };
        let made = made.map_err(|errno| self.failed(name, errno))?;
        self.enter(name, made)
    }

    fn follow(&mut self, name: &OsStr, target: &Path) -> Result<(), DestinationError> {
        if self.here().writer == Writer::Tools {
            return Err(DestinationError::Link { at: self.here().folder.path.join(name) });
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(self.failed(name, Errno::LOOP));
        }
        self.go_on_with(target);
        Ok(())
    }

    /// Puts a path in front of what is still to be gone.
    fn go_on_with(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.pending.push_front(name.to_owned()),
                Component::ParentDir => self.pending.push_front(OsString::from("..")),
                // The first one is the last here.
                Component::RootDir => self.steps.clear(),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn failed(&self, name: &OsStr, errno: Errno) -> DestinationError {
        DestinationError::Failed { at: self.here().folder.path.join(name), source: errno.into() }
    }

    fn into_folder(mut self) -> Folder {
        self.steps.pop().unwrap_or(self.root).folder
    }
}

/// Who may have put what lies in this folder, which lies in one of theirs.
fn writer_in(tools: &ToolFolders, folder: &OwnedFd, around: Writer) -> Result<Writer, Errno> {
    Ok(if around == Writer::Tools || tools.has(folder)? { Writer::Tools } else { Writer::People })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// `work` is the tools'; `own` is the user's.
    fn bed() -> (tempfile::TempDir, PathBuf, ToolFolders) {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        for name in ["work/inner", "own"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        let tools = ToolFolders::of([&*top.join("work"), &*top.join("none")]);
        (temp, top, tools)
    }

    #[test]
    fn folders_are_made_and_links_of_the_users_are_followed() {
        let (_temp, top, tools) = bed();
        symlink(top.join("own"), top.join("link")).unwrap();
        symlink("../link/../work", top.join("own/to-work")).unwrap();
        symlink("circle", top.join("circle")).unwrap();
        for (given, expected) in [
            ("new/deep", "new/deep"),
            ("link", "own"),
            ("link/made", "own/made"),
            ("link/to-work/inner/made", "work/inner/made"),
            ("work/inner/../../own", "own"),
            ("work/./made", "work/made"),
        ] {
            let found = folder(&top.join(given), &tools).unwrap();
            assert_eq!(found.path, top.join(expected), "{given}");
            assert!(top.join(expected).is_dir(), "{given}");
        }
        fs::write(top.join("file"), "").unwrap();
        for given in ["file", "file/inner", "circle"] {
            let error = folder(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Failed { .. }), "{given}: {error}");
        }
    }

    #[test]
    fn no_link_is_followed_where_tools_write() {
        let (_temp, top, tools) = bed();
        symlink(top.join("own"), top.join("work/planted")).unwrap();
        symlink("../../own", top.join("work/inner/planted")).unwrap();
        symlink(top.join("work"), top.join("link")).unwrap();
        for given in
            ["work/planted", "work/planted/made", "work/inner/planted", "link/planted", "own/../work/planted"]
        {
            let error = folder(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Link { .. }), "{given}: {error}");
            let error = file(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Link { .. }), "{given}: {error}");
        }
        assert_eq!(fs::read_dir(top.join("own")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_named_where_it_lies() {
        let (_temp, top, tools) = bed();
        fs::write(top.join("own/there"), "").unwrap();
        symlink("own/there", top.join("link")).unwrap();
        for (given, expected) in [("own/new", "own/new"), ("link", "own/there"), ("work/new", "work/new")] {
            let (folder, name) = file(&top.join(given), &tools).unwrap();
            assert_eq!(folder.path.join(name), top.join(expected), "{given}");
        }
        assert!(!top.join("own/new").exists());
        for given in ["none/new", "own/there/new", "own/.."] {
            let error = file(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Failed { .. }), "{given}: {error}");
        }
    }

    #[test]
    fn a_handle_stays_where_it_was_opened() {
        let (_temp, top, tools) = bed();
        let found = folder(&top.join("work/inner/out"), &tools).unwrap();
        fs::rename(top.join("work/inner"), top.join("work/moved")).unwrap();
        symlink(top.join("own"), top.join("work/inner")).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        rustix::fs::openat(&found.handle, "file", flags, Mode::RUSR).unwrap();
        assert!(top.join("work/moved/out/file").is_file());
    }
}
