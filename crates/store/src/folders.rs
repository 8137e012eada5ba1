//! The folders of a store, open, and the names of contents in them.
//!
//! State: the folders, which stay in a crash. They are made at the first opening; two who open a new store at once make
//! the same.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use conjure_base::Digest;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::store::Variant;

/// What the file `version` holds.
const VERSION: &str = "conjure-store 1\n";
/// What it is called until it is whole.
const NEW_VERSION: &CStr = c"version.new";

/// The folder of frozen links.
pub(crate) const FROZEN: &str = "frozen";

pub(crate) const READ_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The open folders.
#[derive(Debug)]
pub(crate) struct Folders {
    path: PathBuf,
    root: OwnedFd,
    temporary: OwnedFd,
    plain: OwnedFd,
    executable: OwnedFd,
    frozen: OwnedFd,
}

impl Folders {
    /// Opens the store's folders, and makes those that are missing.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| StoreError::of_io(error, "make the folder", path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |errno| StoreError::of(errno, "open", path);
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        check_owner(path, &rustix::fs::fstat(&root).map_err(failed)?)?;
        check_version(path, &root)?;
        let folder = |name: &str| {
            let path = path.join(name);
            make(&root, name).map_err(|errno| StoreError::of(errno, "make the folder", &path))?;
            rustix::fs::openat(&root, name, READ_FOLDER, Mode::empty())
                .map_err(|errno| StoreError::of(errno, "open", &path))
        };
        Ok(Self {
            temporary: folder("temporary")?,
            plain: folder(Variant::Plain.folder())?,
            executable: folder(Variant::Executable.folder())?,
            frozen: folder(FROZEN)?,
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

    pub(crate) const fn temporary(&self) -> &OwnedFd {
        &self.temporary
    }

    pub(crate) fn temporary_path(&self, name: &str) -> PathBuf {
        self.path.join("temporary").join(name)
    }

    /// The folder of the contents of this variant.
    pub(crate) const fn of(&self, variant: Variant) -> &OwnedFd {
        match variant {
            Variant::Plain => &self.plain,
            Variant::Executable => &self.executable,
        }
    }

    /// The folder of frozen links.
    pub(crate) const fn frozen(&self) -> &OwnedFd {
        &self.frozen
    }

    /// Where a content is, for messages.
    pub(crate) fn path_of(&self, digest: &Digest, variant: Variant) -> PathBuf {
        self.path.join(variant.folder()).join(name_of(digest))
    }

    /// Makes the folder that a content's name goes into. Being there already is no failure.
    pub(crate) fn make_shard(&self, digest: &Digest, variant: Variant) -> Result<(), Errno> {
        make_shard_in(self.of(variant), digest)
    }

    /// What the system says of a content; `None` when it is not there.
    pub(crate) fn stat(&self, digest: &Digest, variant: Variant) -> Result<Option<Stat>, StoreError> {
        let stat = rustix::fs::statat(self.of(variant), name_of(digest).as_str(), AtFlags::SYMLINK_NOFOLLOW);
        match stat {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(StoreError::of(errno, "look for", &self.path_of(digest, variant))),
        }
    }

    /// Keeps contents from being collected (shared), or collects (alone), until what is returned is dropped.
    pub(crate) fn lock(&self, operation: FlockOperation) -> Result<Option<OwnedFd>, StoreError> {
        lock(&self.path, &self.root, operation)
    }
}

/// Makes the folder that a content's name goes into, in one of the store's. Being there already is no failure.
pub(crate) fn make_shard_in(folder: &OwnedFd, digest: &Digest) -> Result<(), Errno> {
    let name = name_of(digest);
    let (shard, _) = name.split_at(2);
    make(folder, shard)
}

/// The name of a content beneath its variant's folder: `ab/cdef…`.
pub(crate) fn name_of(digest: &Digest) -> String {
    let mut name = digest.to_hex();
    name.insert(2, '/');
    name
}

/// The digest of the content that has the name `ab/cdef…`; `None` for what is no content's name.
pub(crate) fn digest_of(shard: &str, rest: &str) -> Option<Digest> {
    if shard.len() != 2 {
        return None;
    }
    format!("sha256:{shard}{rest}").parse().ok()
}

fn make(folder: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(folder, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Who may write into a store decides what runs in sandboxes: nobody else may.
fn check_owner(path: &Path, stat: &Stat) -> Result<(), StoreError> {
    let own = rustix::process::geteuid().as_raw();
    let refused = |reason: String| Err(StoreError::Unusable { path: path.to_owned(), reason });
    if stat.st_uid != own && stat.st_uid != 0 {
        return refused(format!(
            "it belongs to the user {}, not to the user {own} who runs this; name a folder of your own",
            stat.st_uid
        ));
    }
    if stat.st_mode & 0o022 != 0 {
        return refused("others may write into it; take that right away with `chmod go-w`".to_owned());
    }
    Ok(())
}

/// Refuses folders of another format, and those that hold something else; makes a store of an empty one.
fn check_version(path: &Path, root: &OwnedFd) -> Result<(), StoreError> {
    if has_version(path, root)? {
        return Ok(());
    }
    // One at a time: the other finds it done.
    let _lock = lock(path, root, FlockOperation::LockExclusive)?;
    if has_version(path, root)? {
        return Ok(());
    }
    let failed = |errno| StoreError::of(errno, "make a store in", path);
    for entry in Dir::read_from(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if ![c".", c"..", c"lock", NEW_VERSION].contains(&entry.file_name()) {
            let reason = "it is not empty and no store; name another folder".to_owned();
            return Err(StoreError::Unusable { path: path.to_owned(), reason });
        }
    }
    // What a crash left is overwritten.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, NEW_VERSION, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let mut file = File::from(file);
    let written = file.write_all(VERSION.as_bytes()).and_then(|()| file.sync_data());
    written.map_err(|error| StoreError::of_io(error, "make a store in", path))?;
    rustix::fs::renameat(root, NEW_VERSION, root, "version").map_err(failed)
}

/// Whether it is a store of this format.
fn has_version(path: &Path, root: &OwnedFd) -> Result<bool, StoreError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(root, "version", flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(StoreError::of(errno, "open", &path.join("version"))),
    };
    let mut text = String::new();
    match File::from(opened).take(64).read_to_string(&mut text) {
        Ok(_) if text == VERSION => Ok(true),
        _ => Err(StoreError::Unusable {
            path: path.to_owned(),
            reason: "it is a store of another version, or none; name another folder".to_owned(),
        }),
    }
}

/// Locks the store, until what is returned is dropped; `None` where nothing can be changed.
fn lock(path: &Path, root: &OwnedFd, operation: FlockOperation) -> Result<Option<OwnedFd>, StoreError> {
    let failed = |errno| StoreError::of(errno, "lock", &path.join("lock"));
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = match rustix::fs::openat(root, "lock", flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::ROFS | Errno::ACCESS) => return Ok(None),
        other => other.map_err(failed)?,
    };
    loop {
        match rustix::fs::flock(&lock, operation) {
            Ok(()) => return Ok(Some(lock)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}
