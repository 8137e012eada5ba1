//! The open directories of a store, and the names of contents in them.
//!
//! State: the directories, which survive a crash. They are created when the store is first opened. Two processes that open a new
//! store at the same time create the same directories.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use conjure_fs::{FileLock, StagedFile, ensure_dir};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;

/// Content of the file `version`.
const VERSION: &str = "conjure-store 1\n";
/// Name of the file `version` until it is complete.
const NEW_VERSION: &str = "version.new";

const READ_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The open directories.
#[derive(Debug)]
pub(crate) struct StoreDirs {
    path: PathBuf,
    root: OwnedFd,
    temporary: OwnedFd,
    plain: OwnedFd,
    executable: OwnedFd,
}

impl StoreDirs {
    /// Opens the store's directories, and creates missing ones.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        ensure_dir(path).map_err(|error| StoreError::from_io(error, "create the directory", path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |errno| StoreError::from_errno(errno, "open", path);
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        check_owner(path, &rustix::fs::fstat(&root).map_err(failed)?)?;
        ensure_version(path, &root)?;
        let dir = |name: &str| {
            let path = path.join(name);
            create_dir(&root, name)
                .map_err(|errno| StoreError::from_errno(errno, "create the directory", &path))?;
            rustix::fs::openat(&root, name, READ_DIR, Mode::empty())
                .map_err(|errno| StoreError::from_errno(errno, "open", &path))
        };
        // Earlier versions kept links to files of other owners here. They would keep the space of deleted files.
        match std::fs::remove_dir_all(path.join("frozen")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::from_io(error, "remove the directory `frozen` of", path));
            }
            _ => {}
        }
        Ok(Self {
            temporary: dir("temporary")?,
            plain: dir(FileMode::Plain.dir_name())?,
            executable: dir(FileMode::Executable.dir_name())?,
            path: path.to_owned(),
            root,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn root(&self) -> &OwnedFd {
        &self.root
    }

    pub(crate) const fn temp_dir(&self) -> &OwnedFd {
        &self.temporary
    }

    pub(crate) fn temp_path(&self, name: &str) -> PathBuf {
        self.path.join("temporary").join(name)
    }

    /// The directory of the contents with this mode.
    pub(crate) const fn content_dir(&self, mode: FileMode) -> &OwnedFd {
        match mode {
            FileMode::Plain => &self.plain,
            FileMode::Executable => &self.executable,
        }
    }

    /// The path of a content, for messages.
    pub(crate) fn content_path(&self, digest: &Digest, mode: FileMode) -> PathBuf {
        self.path.join(mode.dir_name()).join(content_name(digest))
    }

    /// Creates the directory for a content's name. An existing one is no error.
    pub(crate) fn create_shard(&self, digest: &Digest, mode: FileMode) -> Result<(), Errno> {
        let name = content_name(digest);
        let (shard, _) = name.split_at(2);
        create_dir(self.content_dir(mode), shard)
    }

    /// The `stat` of a content; `None` when it does not exist.
    pub(crate) fn stat(&self, digest: &Digest, mode: FileMode) -> Result<Option<Stat>, StoreError> {
        let stat = rustix::fs::statat(
            self.content_dir(mode),
            content_name(digest).as_str(),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        match stat {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(StoreError::from_errno(errno, "look for", &self.content_path(digest, mode))),
        }
    }

    /// Locks the store until the result is dropped: shared against garbage collection, or exclusively for it. `None`
    /// where this user cannot write to the store.
    pub(crate) fn lock(&self, lock: LockOperation) -> Result<Option<FileLock>, StoreError> {
        lock_with(&self.path, &self.root, lock)
    }
}

/// The name of a content relative to the directory of its mode: `ab/cdef…`.
pub(crate) fn content_name(digest: &Digest) -> String {
    let mut name = digest.to_hex();
    name.insert(2, '/');
    name
}

/// The digest of the content with the name `ab/cdef…`; `None` for other names.
pub(crate) fn parse_content_name(shard: &str, rest: &str) -> Option<Digest> {
    if shard.len() != 2 {
        return None;
    }
    format!("sha256:{shard}{rest}").parse().ok()
}

fn create_dir(dir: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Refuses a directory that another user can write to: a writer of the store decides what runs in sandboxes.
fn check_owner(path: &Path, stat: &Stat) -> Result<(), StoreError> {
    let own = rustix::process::geteuid().as_raw();
    let refused = |reason: String| Err(StoreError::Unusable { path: path.to_owned(), reason });
    if stat.st_uid != own && stat.st_uid != 0 {
        return refused(format!(
            "it belongs to the user {}, not to the user {own} who runs this; choose a directory of your own",
            stat.st_uid
        ));
    }
    if stat.st_mode & 0o022 != 0 {
        return refused("other users may write to it; remove that permission with `chmod go-w`".to_owned());
    }
    Ok(())
}

/// Refuses a directory with another format or other files. Makes a store of an empty one.
fn ensure_version(path: &Path, root: &OwnedFd) -> Result<(), StoreError> {
    if has_version(path, root)? {
        return Ok(());
    }
    // One process at a time creates the store. The next one finds it complete.
    let _lock = lock_with(path, root, FileLock::exclusive)?;
    if has_version(path, root)? {
        return Ok(());
    }
    let failed = |errno| StoreError::from_errno(errno, "create a store in", path);
    for entry in Dir::read_from(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if ![".", "..", "lock", NEW_VERSION].map(str::as_bytes).contains(&entry.file_name().to_bytes()) {
            let reason = "it is neither empty nor a store; choose another directory".to_owned();
            return Err(StoreError::Unusable { path: path.to_owned(), reason });
        }
    }
    // A leftover of a crash is overwritten.
    let written = StagedFile::create_as(root, NEW_VERSION, Mode::RUSR | Mode::WUSR).and_then(|mut file| {
        file.write_all(VERSION.as_bytes())?;
        file.sync()?;
        file.replace("version")
    });
    written.map_err(|error| StoreError::from_io(error, "create a store in", path))
}

/// Whether the directory is a store of this format.
fn has_version(path: &Path, root: &OwnedFd) -> Result<bool, StoreError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(root, "version", flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(StoreError::from_errno(errno, "open", &path.join("version"))),
    };
    let mut text = String::new();
    match File::from(opened).take(64).read_to_string(&mut text) {
        Ok(_) if text == VERSION => Ok(true),
        _ => Err(StoreError::Unusable {
            path: path.to_owned(),
            reason: "it is a store of another version, or none; choose another directory".to_owned(),
        }),
    }
}

/// [`FileLock::shared`] or [`FileLock::exclusive`].
type LockOperation = fn(OwnedFd) -> Result<FileLock, Errno>;

/// Locks the store until the result is dropped; `None` where this user cannot write to the store.
fn lock_with(path: &Path, root: &OwnedFd, lock: LockOperation) -> Result<Option<FileLock>, StoreError> {
    let failed = |errno| StoreError::from_errno(errno, "lock", &path.join("lock"));
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(root, "lock", flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::ROFS | Errno::ACCESS) => Ok(None),
        opened => opened.and_then(lock).map(Some).map_err(failed),
    }
}
