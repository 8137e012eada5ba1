//! The folder of one sandbox on the host, or of one session's workspace.
//!
//! ```text
//! <place>/lock        locked while the host lives
//! <place>/skills/     what the sandbox has at /mnt/skills
//! <place>/artifacts/  what it has at /artifacts
//! <place>/output/     spilled output, which the sandbox writes
//! <place>/draft-…     what is being put together
//!
//! <place>/lock
//! <place>/workspace/  where a session works
//! <place>/kept        says that it is not to be removed any more
//! ```
//!
//! State: the folder. It is removed when the place is dropped; after a crash, by [`super::Places::sweep`].

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_store::{StoreError, StoreErrorKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::host::{Inner, keep, unavailable};
use super::removal::remove_beneath;
use super::{move_new, rename_new};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::provision::{Consent, Provided, Provision, Shelf};

const WORKSPACE: &str = "workspace";

/// Who is inside the sandbox may be another user than the host.
const SHARED: Mode = Mode::from_raw_mode(0o755);

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a shelf's folder is called.
const fn folder_of(shelf: Shelf) -> &'static str {
    match shelf {
        Shelf::Skills => "skills",
        Shelf::Artifacts => "artifacts",
    }
}

/// How a sandbox has the files on its shelves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Had {
    /// They are the store's own, where that can be. It sees them where nothing can be written.
    Linked,
    /// They are copies, since its commands could change them.
    Copied,
}

/// What a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Sandbox,
    Workspace,
}

/// One sandbox's folder, locked for as long as this value lives, and removed with it.
#[derive(Debug)]
pub struct Place {
    places: Arc<Inner>,
    name: String,
    path: PathBuf,
    folder: OwnedFd,
    /// `None` once the place was removed.
    lock: Option<OwnedFd>,
    next: AtomicU64,
}

impl Place {
    pub(super) fn new(places: Arc<Inner>, name: String, folder: OwnedFd, lock: OwnedFd) -> Self {
        let path = places.path().join(&name);
        Self { places, name, path, folder, lock: Some(lock), next: AtomicU64::new(0) }
    }

    /// Makes what is in a place.
    pub(super) fn furnish(&self, purpose: Purpose) -> Result<(), SandboxError> {
        let made = match purpose {
            Purpose::Sandbox => [folder_of(Shelf::Skills), folder_of(Shelf::Artifacts), "output"]
                .into_iter()
                .try_for_each(|name| self.make(name)),
            Purpose::Workspace => rustix::fs::mkdirat(&self.folder, WORKSPACE, Mode::RWXU),
        };
        made.map_err(|errno| unavailable("furnish", &self.path, errno))
    }

    fn make(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.folder, name, Mode::RWXU)?;
        // Whatever mask of new files' modes the process has.
        rustix::fs::chmodat(&self.folder, name, SHARED, AtFlags::empty())
    }

    /// Its name among the places.
    #[cfg(feature = "docker")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that the sandbox reads as this shelf.
    #[must_use]
    pub fn shelf(&self, shelf: Shelf) -> PathBuf {
        self.path.join(folder_of(shelf))
    }

    /// The folder that a session works in. Commands can change its permissions, and not those of the place around it.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.path.join(WORKSPACE)
    }

    /// Lets it stay, also when it is swept. If that fails, it stays until it is.
    pub(crate) fn keep(mut self) -> Result<(), SandboxError> {
        // The lock goes in any case: without the mark, the next sweep takes it.
        let _lock = self.lock.take();
        keep(&self.folder).map_err(|errno| unavailable("keep", &self.path, errno))
    }

    /// The folder that output goes to which is too long.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.path.join("output")
    }

    /// Puts a content of a store onto a shelf, whole at once, also while the sandbox runs: by hard links where the store
    /// lies on the same file system, else by copies. Blocks.
    ///
    /// # Errors
    /// `BadRequest` when the name is none; `Exists` when it is taken; `NotFound` when the store does not have all of the
    /// content; `NoSpace`; `Cancelled` when there was no consent in the end. Nothing of it is there then.
    pub fn provide(&self, provision: &Provision, consent: &Consent) -> Result<(), SandboxError> {
        self.provide_as(Had::Linked, provision, consent)
    }

    /// The same, of files that the sandbox has so.
    pub(super) fn provide_as(
        &self,
        had: Had,
        provision: &Provision,
        consent: &Consent,
    ) -> Result<(), SandboxError> {
        let Provision { shelf, name, store, content } = provision;
        check_name(name)?;
        let to = self.open(folder_of(*shelf))?;
        // What is known to fail need not be put together first.
        if rustix::fs::statat(&to, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(taken(name));
        }
        let draft = format!("draft-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let put_together = self.make(&draft).map_err(|errno| unavailable("make", &self.path, errno));
        let result = put_together.and_then(|()| {
            let folder = self.open(&draft)?;
            let linked = match content {
                Provided::Tree(_) if had == Had::Copied => {
                    let message = format!("`{name}` is a folder, and this kind of sandbox takes files alone");
                    return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
                }
                Provided::Tree(tree) => store.link_tree(tree, &folder),
                // In the draft, too: where it must be copied it takes its time, and is not seen.
                Provided::File { digest, variant } => match had {
                    Had::Linked => store.link_into(digest, *variant, &folder, Path::new(name)).map(drop),
                    Had::Copied => store.copy_into(digest, *variant, &folder, Path::new(name)),
                },
            };
            linked.map_err(|error| failed(name, &error))?;
            if !consent.take() {
                let message = format!("`{name}` is not wanted in the sandbox any more");
                return Err(SandboxError::new(SandboxErrorKind::Cancelled, message));
            }
            let moved = match content {
                Provided::Tree(_) => rename_new(&self.folder, &draft, &to, name),
                Provided::File { .. } => move_new(&folder, &to, name),
            };
            moved.map_err(|errno| match errno {
                Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => taken(name),
                other => unavailable("fill", &self.path, other),
            })
        });
        let is_left = result.is_err() || matches!(content, Provided::File { .. });
        if is_left && let Err(error) = remove_beneath(self.folder.as_fd(), draft.as_ref(), None) {
            tracing::warn!(%error, "half a content is left in a sandbox's folder, where it is not seen");
        }
        result
    }

    /// Takes what has this name off a shelf, at once and whole, also while the sandbox runs; what is not there is off already. Blocks.
    ///
    /// # Errors
    /// `BadRequest` when the name is none; `Cancelled` when there was no consent in the end; what the system says.
    pub fn withdraw(&self, shelf: Shelf, name: &str, consent: &Consent) -> Result<(), SandboxError> {
        check_name(name)?;
        let from = self.open(folder_of(shelf))?;
        let failed = |errno| unavailable("clear", &self.path, errno);
        let found = match rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            other => FileType::from_raw_mode(other.map_err(failed)?.st_mode),
        };
        if !consent.take() {
            let message = format!("`{name}` is to stay in the sandbox");
            return Err(SandboxError::new(SandboxErrorKind::Cancelled, message));
        }
        if found != FileType::Directory {
            return match rustix::fs::unlinkat(&from, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(failed(errno)),
            };
        }
        let grave = format!("draft-{}", self.next.fetch_add(1, Ordering::Relaxed));
        rename_new(&from, name, &self.folder, &grave).map_err(failed)?;
        if let Err(error) = remove_beneath(self.folder.as_fd(), grave.as_ref(), None) {
            tracing::warn!(%error, "a content that was withdrawn is left in a sandbox's folder, where it is not seen");
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<OwnedFd, SandboxError> {
        rustix::fs::openat(&self.folder, name, FOLDER, Mode::empty())
            .map_err(|errno| unavailable("open", &self.path.join(name), errno))
    }

    /// Removes it with all that is in it. Nothing may run in the sandbox any more. Blocks.
    ///
    /// # Errors
    /// When something in it cannot be removed; a later sweep tries again.
    pub fn remove(mut self) -> Result<(), SandboxError> {
        self.bury()
    }

    fn bury(&mut self) -> Result<(), SandboxError> {
        match self.lock.take() {
            Some(lock) => self.places.bury(&self.name, &self.folder, lock),
            None => Ok(()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = self.bury() {
            tracing::warn!(%error, "a sandbox's folder is left to be swept");
        }
    }
}

/// What becomes a name in a sandbox must be one.
fn check_name(name: &str) -> Result<(), SandboxError> {
    let is_name = !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0']);
    if is_name {
        return Ok(());
    }
    let message = format!("`{name}` cannot be the name of a file or folder");
    Err(SandboxError::new(SandboxErrorKind::BadRequest, message))
}

fn taken(name: &str) -> SandboxError {
    let message = format!("the sandbox has a `{name}` already, which stays as it is");
    SandboxError::new(SandboxErrorKind::Exists, message)
}

fn failed(name: &str, error: &StoreError) -> SandboxError {
    if error.kind() == StoreErrorKind::Exists {
        return taken(name);
    }
    SandboxError::new(kind_of(error), format!("`{name}` cannot be given to the sandbox: {error}"))
}

/// What a failure of a store is for a sandbox.
pub(crate) fn kind_of(error: &StoreError) -> SandboxErrorKind {
    match error.kind() {
        StoreErrorKind::Exists => SandboxErrorKind::Exists,
        StoreErrorKind::Unusable => SandboxErrorKind::Unavailable,
        StoreErrorKind::NotFound => SandboxErrorKind::NotFound,
        StoreErrorKind::NoSpace => SandboxErrorKind::NoSpace,
        StoreErrorKind::TooMuch => SandboxErrorKind::TooLarge,
        StoreErrorKind::PermissionDenied | StoreErrorKind::ReadOnly => SandboxErrorKind::PermissionDenied,
        _ => SandboxErrorKind::Io,
    }
}
