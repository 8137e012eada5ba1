//! The folder that holds the folders of all sandboxes of a host, and removing those of hosts that are dead.
//!
//! State: `<data>/sandboxes/<name>`, one folder for each sandbox, with a file `lock` that is locked as long as the host
//! lives. After a crash the kernel has let go of the lock, and [`Places::sweep`] removes the folder. A folder is renamed
//! to `dead-…` before anything of it is removed, while its lock is held: so no two ever take the same folder for theirs,
//! one to live in and one to remove. What has no name as we give them, or no lock, is somebody else's and stays.

use std::ffi::{CStr, CString, OsString};
use std::fs::DirBuilder;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::DirBuilderExt as _;
#[cfg(feature = "docker")]
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "docker")]
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "docker")]
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::place::{Place, Purpose};
use super::removal::{FolderId, is_called, remove_beneath};
use super::rename_new;
use crate::error::{SandboxError, SandboxErrorKind};

/// How many names are tried for a new place.
const ATTEMPTS: u32 = 10_000;

/// What the names of folders begin with that are being removed.
const DEAD: &str = "dead-";

const LOCK: &CStr = c"lock";

/// The file that marks a place as kept.
const KEPT: &CStr = c"kept";

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where the sandboxes of a host, or of a tenant, have their folders. Clones are the same.
#[derive(Debug, Clone)]
pub struct Places {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    path: PathBuf,
    folder: OwnedFd,
    next: AtomicU64,
}

/// Places that may be gone: whoever only asks about them does not keep their folder open.
#[cfg(feature = "docker")]
#[derive(Debug, Clone)]
pub(crate) struct KnownPlaces {
    identity: String,
    inner: Weak<Inner>,
}

#[cfg(feature = "docker")]
impl KnownPlaces {
    /// Whether they are these.
    pub(crate) fn are(&self, identity: &str) -> bool {
        self.identity == identity
    }

    /// Whether both are.
    pub(crate) fn are_the_same(&self, other: &Self) -> bool {
        self.are(&other.identity)
    }

    /// Whether nobody can ask about them any more.
    pub(crate) fn are_gone(&self) -> bool {
        self.inner.strong_count() == 0
    }

    /// Whether nobody lives who holds the place of this name, or has it; `None` when that cannot be told.
    pub(crate) fn is_abandoned(&self, name: &str) -> Option<bool> {
        let inner = self.inner.upgrade().filter(|_| is_ours(name))?;
        match inner.claim(name, OFlags::empty()) {
            Ok(Claim::Alive) => Some(false),
            // Held for a moment, and left as it is.
            Ok(Claim::Ours(..) | Claim::Gone) => Some(true),
            Err(_) => None,
        }
    }
}

/// What [`Places::sweep`] did.
#[derive(Debug, Default)]
pub struct SweptPlaces {
    /// Places of dead hosts, removed.
    pub removed: usize,
    /// Places of hosts that live, this one among them.
    pub alive: usize,
    /// Places that stay, though their hosts are gone.
    pub kept: usize,
    /// What could not be removed.
    pub failures: Vec<SandboxError>,
}

impl Places {
    /// The places beneath the folder `data`, which is made if it is missing, for its owner only.
    ///
    /// # Errors
    /// When the folder cannot be made or opened.
    pub fn open(data: &Path) -> Result<Self, SandboxError> {
        Self::in_folder(data.join("sandboxes"))
    }

    /// The places in this folder.
    pub(crate) fn in_folder(path: PathBuf) -> Result<Self, SandboxError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| unavailable("make", &path, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, &path, flags, Mode::empty())
            .map_err(|errno| unavailable("open", &path, errno))?;
        let path = std::fs::canonicalize(&path).map_err(|error| unavailable("open", &path, error))?;
        Ok(Self { inner: Arc::new(Inner { path, folder, next: AtomicU64::new(0) }) })
    }

    /// The folder that they lie in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Which folder they lie in, of all that this machine has had since it was started: whoever meets it by another path, in
    /// another container, says the same. `None` where the file system does not tell when a folder was made.
    #[cfg(feature = "docker")]
    pub(crate) fn identity(&self) -> Option<String> {
        let found = std::fs::metadata(&self.inner.path).ok()?;
        let made = found.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{:x}-{:x}-{:x}", found.dev(), found.ino(), made.as_nanos()))
    }

    /// To ask about them later.
    #[cfg(feature = "docker")]
    pub(crate) fn known(&self) -> Option<KnownPlaces> {
        Some(KnownPlaces { identity: self.identity()?, inner: Arc::downgrade(&self.inner) })
    }

    /// A new place, which goes when it is dropped, for what a sandbox reads and for its output.
    ///
    /// # Errors
    /// `NoSpace` and others by the system.
    pub fn make(&self) -> Result<Place, SandboxError> {
        self.make_for(Purpose::Sandbox)
    }

    /// A new place, which goes when it is dropped.
    pub(crate) fn make_for(&self, purpose: Purpose) -> Result<Place, SandboxError> {
        let inner = &self.inner;
        for _ in 0..ATTEMPTS {
            let number = inner.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{number}", std::process::id());
            let path = inner.path.join(&name);
            match rustix::fs::mkdirat(&inner.folder, name.as_str(), Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(unavailable("make", &path, errno)),
            }
            // Who sweeps may have come in between.
            let claim = inner.claim(&name, OFlags::CREATE).map_err(|errno| {
                // As on a full disk, on which a folder had room, and its lock has none.
                if let Ok(folder) = rustix::fs::openat(&inner.folder, name.as_str(), FOLDER, Mode::empty()) {
                    let _ = rustix::fs::unlinkat(folder, LOCK, AtFlags::empty());
                }
                let _ = rustix::fs::unlinkat(&inner.folder, name.as_str(), AtFlags::REMOVEDIR);
                unavailable("lock", &path, errno)
            });
            match claim? {
                Claim::Ours(folder, lock) => {
                    let place = Place::new(Arc::clone(inner), name, folder, lock);
                    return place.furnish(purpose).map(|()| place);
                }
                Claim::Gone | Claim::Alive => {}
            }
        }
        Err(unavailable("make", &inner.path, Errno::EXIST))
    }

    /// Removes the places of hosts that are dead. Those of hosts that live, this one too, are left alone, and so is what is
    /// no place.
    ///
    /// # Errors
    /// When the places cannot be listed. What cannot be removed is in the result.
    pub fn sweep(&self) -> Result<SweptPlaces, SandboxError> {
        let failed = |errno| unavailable("list", &self.inner.path, errno);
        let mut swept = SweptPlaces::default();
        for entry in Dir::read_from(&self.inner.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let name = OsString::from_vec(name.to_bytes().to_vec());
            let outcome = match name.to_str() {
                // Somebody died over it.
                Some(name) if name.strip_prefix(DEAD).is_some_and(is_ours) => {
                    remove_beneath(self.inner.folder.as_fd(), name.as_ref(), None).map(|()| Fate::Removed)
                }
                Some(name) if is_ours(name) => self.inner.sweep(name),
                _ => continue,
            };
            match outcome {
                Ok(Fate::Removed) => swept.removed += 1,
                Ok(Fate::Alive) => swept.alive += 1,
                Ok(Fate::Kept) => swept.kept += 1,
                Ok(Fate::None) => {}
                Err(error) => swept.failures.push(error),
            }
        }
        Ok(swept)
    }
}

/// What became of a place.
enum Fate {
    Removed,
    Alive,
    Kept,
    /// It is none, or somebody else was faster.
    None,
}

/// Whose a place is.
enum Claim {
    /// Nobody else's: its folder, and its lock, held.
    Ours(OwnedFd, OwnedFd),
    /// Somebody else's who lives.
    Alive,
    /// It is not there any more.
    Gone,
}

impl Inner {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks a place, if nobody else has. `flags`: whether a lock that is missing is made.
    fn claim(&self, name: &str, flags: OFlags) -> Result<Claim, Errno> {
        let folder = match rustix::fs::openat(&self.folder, name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Claim::Gone),
            other => other?,
        };
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = match rustix::fs::openat(&folder, LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(Claim::Gone),
            other => other?,
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Claim::Alive),
            Err(errno) => return Err(errno),
        }
        // Before the lock was had, another may have held it and removed the place, and a third made one of the same name.
        let c_name = CString::new(name).map_err(|_| Errno::INVAL)?;
        if is_called(&folder, &self.folder, &c_name) && is_called(&lock, &folder, LOCK) {
            Ok(Claim::Ours(folder, lock))
        } else {
            Ok(Claim::Gone)
        }
    }

    /// Removes a place whose host is dead.
    fn sweep(&self, name: &str) -> Result<Fate, SandboxError> {
        let failed = |errno| unavailable("lock", &self.path.join(name), errno);
        // A host that died between making the folder and the lock has left nothing else in it.
        if rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(Fate::Removed);
        }
        match self.claim(name, OFlags::empty()).map_err(failed)? {
            Claim::Ours(folder, _) if is_kept(&folder) => Ok(Fate::Kept),
            Claim::Ours(folder, lock) => self.bury(name, &folder, lock).map(|()| Fate::Removed),
            Claim::Alive => Ok(Fate::Alive),
            Claim::Gone => Ok(Fate::None),
        }
    }

    /// Removes a place whose lock is held.
    pub(super) fn bury(&self, name: &str, folder: &OwnedFd, lock: OwnedFd) -> Result<(), SandboxError> {
        let path = self.path.join(name);
        let failed = |errno| unavailable("remove", &path, errno);
        let id = FolderId::of_open(folder).map_err(failed)?;
        for _ in 0..ATTEMPTS {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let dead = format!("{DEAD}{}-{number}", std::process::id());
            match rename_new(&self.folder, name, &self.folder, &dead) {
                Ok(()) => {
                    let removed = remove_beneath(self.folder.as_fd(), dead.as_ref(), Some(id));
                    drop(lock);
                    return removed;
                }
                Err(Errno::NOENT) => return Ok(()),
                // Left by somebody of the same number.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EXIST))
    }
}

/// Whether it is a name as places have: the number of a process, and one of its own.
fn is_ours(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-').is_some_and(|(process, number)| is_number(process) && is_number(number))
}

fn is_kept(folder: &OwnedFd) -> bool {
    rustix::fs::statat(folder, KEPT, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Marks a place as one that stays.
pub(super) fn keep(folder: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, KEPT, flags, Mode::RUSR | Mode::WUSR).map(drop)
}

/// Why there is no place.
pub(super) fn unavailable(doing: &str, path: &Path, error: impl Into<std::io::Error>) -> SandboxError {
    let error = error.into();
    let kind = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => SandboxErrorKind::NoSpace,
        _ => SandboxErrorKind::Unavailable,
    };
    let path = path.display();
    SandboxError::new(kind, format!("a sandbox's folder has no place: failed to {doing} `{path}`: {error}"))
}
