//! Linking contents and trees to where they are needed, or copying them where they cannot be linked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use conjure_base::Digest;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::store::{Inner, Store, Verify};
use crate::store_dirs::content_name;
use crate::tree::Tree;

/// The number of names to try for a copy that is being written.
const MAX_ATTEMPTS: u32 = 1000;

/// Permission bits of the directories of a tree.
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);

/// How a content got its name outside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMethod {
    /// The name is a hard link to the store's file.
    HardLink,
    /// The name is a copy: on another file system, at the file's maximum number of links, or where the system does not let this
    /// user link the file.
    Copy,
}

impl Store {
    /// Links a content to `name` in the open directory `folder`. The name appears at once and complete.
    ///
    /// # Errors
    /// `NotFound` when the store has no such content in this mode; `Exists` when the name is taken; `NoSpace` and any other error
    /// of the system.
    pub fn link_into(
        &self,
        digest: &Digest,
        mode: FileMode,
        folder: impl AsFd,
        name: &Path,
    ) -> Result<LinkMethod, StoreError> {
        check_name(name)?;
        let store = self.inner();
        store.touch(&store.lock_against_gc()?, digest, mode)?;
        store.link_into(digest, mode, folder.as_fd(), name)
    }

    /// Copies a content to `name` in the open directory `folder`, as a file that others may change. It shares blocks with the
    /// store's file where the file system supports that.
    ///
    /// # Errors
    /// As for [`Store::link_into`]; a content of the other mode will do.
    pub fn copy_into(
        &self,
        digest: &Digest,
        mode: FileMode,
        folder: impl AsFd,
        name: &Path,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let store = self.inner();
        store.touch(&store.lock_against_gc()?, digest, mode)?;
        let from = self.get(digest, Verify::No)?.into_file();
        store.copy_into(from.into(), mode, folder.as_fd(), name, |_| Ok(()))
    }

    /// Links all files of a tree beneath the open directory `folder`, and creates its directories with mode 0755. The directory
    /// should be new and empty. After an error some of the files are there.
    ///
    /// # Errors
    /// As for [`Store::link_into`].
    pub fn link_tree(&self, tree: &Tree, folder: impl AsFd) -> Result<(), StoreError> {
        let store = self.inner();
        let gc_guard = store.lock_against_gc()?;
        let top = folder.as_fd();
        // Files are sorted by path, so those of one directory follow each other.
        let mut parent: Option<(&Path, OwnedFd)> = None;
        for file in tree.files() {
            let (path, mode) = (file.path(), file.mode());
            let above = path.parent().unwrap_or(Path::new(""));
            if parent.as_ref().is_none_or(|(open, _)| *open != above) {
                parent = Some((above, create_dirs(top, above)?));
            }
            let Some((_, parent)) = &parent else { continue };
            let name = Path::new(path.file_name().unwrap_or_default());
            store.touch(&gc_guard, file.digest(), mode)?;
            store.link_into(file.digest(), mode, parent.as_fd(), name)?;
        }
        Ok(())
    }
}

/// Opens the directory at `path` beneath `top`, and creates missing ones. Symbolic links are not followed.
fn create_dirs(top: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, StoreError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |errno, path: &Path| StoreError::from_errno(errno, "create the directory", path);
    let mut made = PathBuf::new();
    let mut folder =
        rustix::fs::openat(top, ".", flags, Mode::empty()).map_err(|errno| failed(errno, path))?;
    for component in path.components() {
        made.push(component);
        let Component::Normal(name) = component else { return Err(failed(Errno::INVAL, path)) };
        let mut next = rustix::fs::openat(&folder, name, flags, Mode::empty());
        if matches!(next, Err(Errno::NOENT)) {
            rustix::fs::mkdirat(&folder, name, Mode::RWXU).map_err(|errno| failed(errno, &made))?;
            next = rustix::fs::openat(&folder, name, flags, Mode::empty());
            // Independent of the umask of the process.
            rustix::fs::chmodat(&folder, name, DIR_MODE, AtFlags::empty())
                .map_err(|errno| failed(errno, &made))?;
        }
        folder = next.map_err(|errno| failed(errno, &made))?;
    }
    Ok(folder)
}

fn check_name(name: &Path) -> Result<(), StoreError> {
    let mut components = name.components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name.as_os_str() => Ok(()),
        _ => Err(StoreError::from_errno(Errno::INVAL, "link", name)),
    }
}

impl Inner {
    fn link_into(
        &self,
        digest: &Digest,
        mode: FileMode,
        folder: BorrowedFd<'_>,
        name: &Path,
    ) -> Result<LinkMethod, StoreError> {
        let from = self.dirs.content_dir(mode);
        match rustix::fs::linkat(from, content_name(digest).as_str(), folder, name, AtFlags::empty()) {
            Ok(()) => Ok(LinkMethod::HardLink),
            // Another file system, too many links, a file of another user (`fs.protected_hardlinks`), or a file system without links.
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let from = match self.open(digest, mode) {
                    Err(Errno::NOENT) => return Err(StoreError::NotFound { digest: *digest }),
                    other => other.map_err(|errno| StoreError::from_errno(errno, "copy", name))?,
                };
                self.copy_into(from, mode, folder, name, |_| Ok(())).map(|()| LinkMethod::Copy)
            }
            // Either the content or the directory is missing.
            Err(Errno::NOENT) if self.dirs.stat(digest, mode)?.is_none() => {
                match self.frozen_link(digest)? {
                    Some(frozen) if mode == FileMode::Plain => self.link_frozen_into(&frozen, folder, name),
                    _ => Err(StoreError::NotFound { digest: *digest }),
                }
            }
            Err(errno) => Err(StoreError::from_errno(errno, "link", name)),
        }
    }

    /// Copies an open file to a name. The name appears once the copy is complete and `check` has accepted what was copied.
    pub(crate) fn copy_into(
        &self,
        from: OwnedFd,
        mode: FileMode,
        folder: BorrowedFd<'_>,
        name: &Path,
        check: impl Fn(&OwnedFd) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |errno| StoreError::from_errno(errno, "copy", name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..MAX_ATTEMPTS {
            let staged = format!(".conjure-{}.tmp", self.next_temp_name());
            let to = match rustix::fs::openat(folder, staged.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => continue,
                other => other.map_err(failed)?,
            };
            let copied = copy(&from, &to)
                .map_err(|error| StoreError::from_io(error, "copy", name))
                .and_then(|()| check(&from))
                .and_then(|()| rustix::fs::fchmod(&to, mode.permissions()).map_err(failed))
                .and_then(|()| link_if_absent(folder, &staged, name).map_err(failed));
            if copied.is_err() {
                // The error of the copy is reported, not the one of the removal.
                let _ = rustix::fs::unlinkat(folder, staged.as_str(), AtFlags::empty());
            }
            return copied;
        }
        Err(failed(Errno::EXIST))
    }
}

fn copy(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let (mut from, mut to) = (std::fs::File::from(from.try_clone()?), std::fs::File::from(to.try_clone()?));
    // The standard library lets the kernel copy where it can.
    io::copy(&mut from, &mut to).map(drop)
}

/// Renames the staged file to its name, unless that is taken.
fn link_if_absent(folder: BorrowedFd<'_>, staged: &str, name: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(folder, staged, folder, name, RenameFlags::NOREPLACE) {
        // The file system does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(folder, staged, folder, name, AtFlags::empty())?;
            rustix::fs::unlinkat(folder, staged, AtFlags::empty())
        }
        other => other,
    }
}
