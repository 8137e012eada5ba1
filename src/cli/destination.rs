//! Opens the directories and files that the user named on the command line, for output and as input.
//!
//! A tool may create a link wherever it can write, even just before the command writes or reads there. So the path is resolved once,
//! component by component, and everything is written or read through the resulting handle. Links are followed in directories that only users write to. They are
//! refused in directories that tools write to ([`ToolDirs`]).
//!
//! State: only the open directories.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

/// Opens a directory itself, and never a link to it.
const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens an entry itself, of any type.
const ANYTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The maximum number of links in a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Directories that tools may write to, including everything below them.
#[derive(Debug, Default)]
pub(crate) struct ToolDirs {
    /// Their devices and inodes.
    ids: Vec<(u64, u64)>,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDir {
    pub(crate) handle: OwnedFd,
    /// Its path without links at the time of opening; for messages.
    pub(crate) path: PathBuf,
}

/// Why a path cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DestinationError {
    /// The entry is a link that a tool may have created.
    #[error("`{}` is a link in a directory that tools write to, or wrote to in an earlier session, so it is not followed; name what is meant by its own path", at.display())]
    Link {
        /// The link.
        at: PathBuf,
    },
    /// The system refused it.
    #[error("`{}` cannot be used: {source}", at.display())]
    Failed {
        /// The path.
        at: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl ToolDirs {
    /// Records these paths, if they exist.
    pub(crate) fn new<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        let ids = paths.into_iter().filter_map(|path| rustix::fs::stat(path).ok());
        Self { ids: ids.map(|stat| (stat.st_dev, stat.st_ino)).collect() }
    }

    fn has(&self, dir: &OwnedFd) -> Result<bool, Errno> {
        let stat = fstat(dir)?;
        Ok(self.ids.contains(&(stat.st_dev, stat.st_ino)))
    }
}

/// Opens a directory, and creates it if it is missing. Blocks.
pub(crate) fn open_dir(path: &Path, tools: &ToolDirs) -> Result<OpenDir, DestinationError> {
    let mut walk = PathWalk::new(path, tools)?;
    while let Some(name) = walk.next() {
        match walk.inspect(&name)? {
            EntryKind::Dir(handle) => walk.enter(&name, handle)?,
            EntryKind::Link(target) => walk.follow(&name, &target)?,
            EntryKind::Nothing => walk.make(&name)?,
            EntryKind::Other => return Err(walk.failed(&name, Errno::NOTDIR)),
        }
    }
    Ok(walk.into_dir())
}

/// Opens the parent directory of a file, which need not exist. Follows links, and returns the resulting parent and the file's name in it.
/// That entry is not a link. Blocks.
pub(crate) fn open_parent(path: &Path, tools: &ToolDirs) -> Result<(OpenDir, OsString), DestinationError> {
    let mut walk = PathWalk::new(path, tools)?;
    while let Some(name) = walk.next() {
        let is_last = walk.pending.is_empty();
        match walk.inspect(&name)? {
            EntryKind::Link(target) => walk.follow(&name, &target)?,
            _ if is_last => return Ok((walk.into_dir(), name)),
            EntryKind::Dir(handle) => walk.enter(&name, handle)?,
            EntryKind::Nothing => return Err(walk.failed(&name, Errno::NOENT)),
            EntryKind::Other => return Err(walk.failed(&name, Errno::NOTDIR)),
        }
    }
    Err(DestinationError::Failed { at: path.to_owned(), source: Errno::ISDIR.into() })
}

/// Opens a file for reading. If it is not a regular file, the returned handle cannot be read: opening a pipe would wait, and opening a
/// device may have effects. Blocks.
pub(crate) fn open_file(path: &Path, tools: &ToolDirs) -> Result<File, DestinationError> {
    let failed = |errno: Errno| DestinationError::Failed { at: path.to_owned(), source: errno.into() };
    let (dir, name) = open_parent(path, tools).map_err(|error| match error {
        DestinationError::Failed { source, .. } => DestinationError::Failed { at: path.to_owned(), source },
        link @ DestinationError::Link { .. } => link,
    })?;
    let inspected =
        File::from(rustix::fs::openat(&dir.handle, &name, ANYTHING, Mode::empty()).map_err(failed)?);
    if FileType::from_raw_mode(fstat(&inspected).map_err(failed)?.st_mode) != FileType::RegularFile {
        return Ok(inspected);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir.handle, &name, flags, Mode::empty()).map(File::from).map_err(failed)
}

/// The path of a file without links. Blocks.
pub(crate) fn real_path(path: &Path, tools: &ToolDirs) -> Result<PathBuf, DestinationError> {
    open_parent(path, tools).map(|(dir, name)| dir.path.join(name))
}

/// The kind of an entry.
enum EntryKind {
    Dir(OwnedFd),
    Link(PathBuf),
    Nothing,
    Other,
}

/// A walk along a path from the root.
struct PathWalk<'t> {
    tools: &'t ToolDirs,
    root: Step,
    /// The directories from the root on. `..` returns to the previous one, because the real parent may have changed meanwhile.
    steps: Vec<Step>,
    pending: VecDeque<OsString>,
    links: usize,
}

struct Step {
    dir: OpenDir,
    writer: Writer,
}

/// Who may have created the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    People,
    Tools,
}

impl<'t> PathWalk<'t> {
    fn new(path: &Path, tools: &'t ToolDirs) -> Result<Self, DestinationError> {
        let failed = |source: io::Error| DestinationError::Failed { at: path.to_owned(), source };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let handle = rustix::fs::open("/", DIR, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let writer = writer_in(tools, &handle, Writer::People).map_err(|errno| failed(errno.into()))?;
        let root = Step { dir: OpenDir { handle, path: PathBuf::from("/") }, writer };
        let mut walk = Self { tools, root, steps: Vec::new(), pending: VecDeque::new(), links: 0 };
        walk.prepend(&absolute);
        Ok(walk)
    }

    fn here(&self) -> &Step {
        self.steps.last().unwrap_or(&self.root)
    }

    /// The next component.
    fn next(&mut self) -> Option<OsString> {
        while let Some(name) = self.pending.pop_front() {
            if name != ".." {
                return Some(name);
            }
            self.steps.pop();
        }
        None
    }

    fn inspect(&self, name: &OsStr) -> Result<EntryKind, DestinationError> {
        let here = &self.here().dir.handle;
        let looked = match rustix::fs::openat(here, name, DIR, Mode::empty()) {
            Ok(handle) => return Ok(EntryKind::Dir(handle)),
            Err(Errno::NOENT) => return Ok(EntryKind::Nothing),
            Err(Errno::NOTDIR | Errno::LOOP) => rustix::fs::openat(here, name, ANYTHING, Mode::empty()),
            Err(errno) => Err(errno),
        };
        let target = looked.and_then(|found| {
            let is_link = FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink;
            is_link.then(|| rustix::fs::readlinkat(&found, "", Vec::new())).transpose()
        });
        match target {
            Ok(Some(target)) => Ok(EntryKind::Link(OsString::from_vec(target.into_bytes()).into())),
            Ok(None) => Ok(EntryKind::Other),
            Err(Errno::NOENT) => Ok(EntryKind::Nothing),
            Err(errno) => Err(self.failed(name, errno)),
        }
    }

    fn enter(&mut self, name: &OsStr, handle: OwnedFd) -> Result<(), DestinationError> {
        let writer = writer_in(self.tools, &handle, self.here().writer);
        let writer = writer.map_err(|errno| self.failed(name, errno))?;
        let path = self.here().dir.path.join(name);
        self.steps.push(Step { dir: OpenDir { handle, path }, writer });
        Ok(())
    }

    fn make(&mut self, name: &OsStr) -> Result<(), DestinationError> {
        let here = &self.here().dir.handle;
        let made = match rustix::fs::mkdirat(here, name, Mode::from_raw_mode(0o777)) {
            // Another process may have created the directory first.
            Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(here, name, DIR, Mode::empty()),
            Err(errno) => Err(errno),
        };
        let made = made.map_err(|errno| self.failed(name, errno))?;
        self.enter(name, made)
    }

    fn follow(&mut self, name: &OsStr, target: &Path) -> Result<(), DestinationError> {
        if self.here().writer == Writer::Tools {
            return Err(DestinationError::Link { at: self.here().dir.path.join(name) });
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self.failed(name, Errno::LOOP));
        }
        self.prepend(target);
        Ok(())
    }

    /// Prepends a path to the components that remain.
    fn prepend(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.pending.push_front(name.to_owned()),
                Component::ParentDir => self.pending.push_front(OsString::from("..")),
                // The iteration is reversed, so this is the last component.
                Component::RootDir => self.steps.clear(),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn failed(&self, name: &OsStr, errno: Errno) -> DestinationError {
        DestinationError::Failed { at: self.here().dir.path.join(name), source: errno.into() }
    }

    fn into_dir(mut self) -> OpenDir {
        self.steps.pop().unwrap_or(self.root).dir
    }
}

/// Who may have created the entries of this directory, given those of its parent.
fn writer_in(tools: &ToolDirs, dir: &OwnedFd, around: Writer) -> Result<Writer, Errno> {
    Ok(if around == Writer::Tools || tools.has(dir)? { Writer::Tools } else { Writer::People })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_read_through_the_users_links_alone() {
        use std::io::Read as _;
        let (_temp, top, tools) = fixture();
        fs::write(top.join("own/there"), "mine").unwrap();
        symlink("own/there", top.join("link")).unwrap();
        symlink("../own/there", top.join("work/planted")).unwrap();
        symlink("../own", top.join("work/directory")).unwrap();
        let mut text = String::new();
        open_file(&top.join("link"), &tools).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(
            (text.as_str(), real_path(&top.join("link"), &tools).unwrap()),
            ("mine", top.join("own/there"))
        );
        for given in ["work/planted", "work/directory/there"] {
            let error = open_file(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Link { .. }), "{given}: {error}");
            assert!(real_path(&top.join(given), &tools).is_err(), "{given}");
        }
        assert!(open_file(&top.join("own"), &tools).unwrap().metadata().unwrap().is_dir());
        assert!(open_file(&top.join("own/none"), &tools).is_err());
    }

    /// Tools write to `work`, and the user to `own`.
    fn fixture() -> (tempfile::TempDir, PathBuf, ToolDirs) {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        for name in ["work/inner", "own"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        let tools = ToolDirs::new([&*top.join("work"), &*top.join("none")]);
        (temp, top, tools)
    }

    #[test]
    fn directories_are_made_and_links_of_the_users_are_followed() {
        let (_temp, top, tools) = fixture();
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
            let found = open_dir(&top.join(given), &tools).unwrap();
            assert_eq!(found.path, top.join(expected), "{given}");
            assert!(top.join(expected).is_dir(), "{given}");
        }
        fs::write(top.join("file"), "").unwrap();
        for given in ["file", "file/inner", "circle"] {
            let error = open_dir(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Failed { .. }), "{given}: {error}");
        }
    }

    #[test]
    fn no_link_is_followed_where_tools_write() {
        let (_temp, top, tools) = fixture();
        symlink(top.join("own"), top.join("work/planted")).unwrap();
        symlink("../../own", top.join("work/inner/planted")).unwrap();
        symlink(top.join("work"), top.join("link")).unwrap();
        for given in
            ["work/planted", "work/planted/made", "work/inner/planted", "link/planted", "own/../work/planted"]
        {
            let error = open_dir(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Link { .. }), "{given}: {error}");
            let error = open_parent(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Link { .. }), "{given}: {error}");
        }
        assert_eq!(fs::read_dir(top.join("own")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_named_where_it_lies() {
        let (_temp, top, tools) = fixture();
        fs::write(top.join("own/there"), "").unwrap();
        symlink("own/there", top.join("link")).unwrap();
        for (given, expected) in [("own/new", "own/new"), ("link", "own/there"), ("work/new", "work/new")] {
            let (dir, name) = open_parent(&top.join(given), &tools).unwrap();
            assert_eq!(dir.path.join(name), top.join(expected), "{given}");
        }
        assert!(!top.join("own/new").exists());
        for given in ["none/new", "own/there/new", "own/.."] {
            let error = open_parent(&top.join(given), &tools).unwrap_err();
            assert!(matches!(error, DestinationError::Failed { .. }), "{given}: {error}");
        }
    }

    #[test]
    fn a_handle_stays_where_it_was_opened() {
        let (_temp, top, tools) = fixture();
        let found = open_dir(&top.join("work/inner/out"), &tools).unwrap();
        fs::rename(top.join("work/inner"), top.join("work/moved")).unwrap();
        symlink(top.join("own"), top.join("work/inner")).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        rustix::fs::openat(&found.handle, "file", flags, Mode::RUSR).unwrap();
        assert!(top.join("work/moved/out/file").is_file());
    }
}
