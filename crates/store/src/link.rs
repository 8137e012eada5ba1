//! Links contents and trees to other directories. Copies them where they cannot be linked.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use conjure_base::Digest;
use conjure_fs::{DirHandle, StagedFile};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::store::{Inner, Store, Verify};
use crate::store_dirs::content_name;
use crate::tree::Tree;

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
    /// Links a content to `name` in the open directory `dir`. The name appears at once and complete.
    ///
    /// # Errors
    /// `NotFound` when the store has no such content in this mode; `Exists` when the name is taken; `NoSpace` and any other error
    /// of the system.
    pub fn link_into(
        &self,
        digest: &Digest,
        mode: FileMode,
        dir: impl AsFd,
        name: &Path,
    ) -> Result<LinkMethod, StoreError> {
        check_name(name)?;
        let store = self.inner();
        store.touch(&store.lock_against_gc()?, digest, mode)?;
        store.link_into(digest, mode, dir.as_fd(), name)
    }

    /// Copies a content to `name` in the open directory `dir`, as a file that may be changed. It shares blocks
    /// with the store's file where the file system supports that.
    ///
    /// # Errors
    /// As for [`Store::link_into`]; a content of the other mode is also accepted.
    pub fn copy_into(
        &self,
        digest: &Digest,
        mode: FileMode,
        dir: impl AsFd,
        name: &Path,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let store = self.inner();
        store.touch(&store.lock_against_gc()?, digest, mode)?;
        let from = self.get(digest, Verify::No)?.into_file();
        store.copy_into(from.into(), mode, dir.as_fd(), name)
    }

    /// Links all files of a tree beneath the open directory `dir`, and creates its directories with mode 0755. The
    /// directory should be new and empty. After an error, some of the files may already be linked.
    ///
    /// # Errors
    /// As for [`Store::link_into`].
    pub fn link_tree(&self, tree: &Tree, dir: impl AsFd) -> Result<(), StoreError> {
        let store = self.inner();
        let gc_guard = store.lock_against_gc()?;
        let top = dir.as_fd().try_clone_to_owned();
        let top = top.map_err(|error| StoreError::from_io(error, "open", Path::new(".")))?;
        let top = DirHandle::from(top);
        // Files are sorted by path, so those of one directory follow each other.
        let mut parent: Option<(&Path, DirHandle)> = None;
        for file in tree.files() {
            let (path, mode) = (file.path(), file.mode());
            let above = path.parent().unwrap_or(Path::new(""));
            if parent.as_ref().is_none_or(|(open, _)| *open != above) {
                let opened = top.create_dirs(above, DIR_MODE);
                parent = Some((
                    above,
                    opened.map_err(|errno| StoreError::from_errno(errno, "create the directory", above))?,
                ));
            }
            let Some((_, parent)) = &parent else { continue };
            let name = Path::new(path.file_name().unwrap_or_default());
            store.touch(&gc_guard, file.digest(), mode)?;
            store.link_into(file.digest(), mode, parent.as_fd(), name)?;
        }
        Ok(())
    }
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
        dir: BorrowedFd<'_>,
        name: &Path,
    ) -> Result<LinkMethod, StoreError> {
        let from = self.dirs.content_dir(mode);
        match rustix::fs::linkat(from, content_name(digest).as_str(), dir, name, AtFlags::empty()) {
            Ok(()) => Ok(LinkMethod::HardLink),
            // Another file system, too many links, a file of another user (`fs.protected_hardlinks`), or a file system without links.
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let from = match self.open(digest, mode) {
                    Err(Errno::NOENT) => return Err(StoreError::NotFound { digest: *digest }),
                    other => other.map_err(|errno| StoreError::from_errno(errno, "copy", name))?,
                };
                self.copy_into(from, mode, dir, name).map(|()| LinkMethod::Copy)
            }
            // Either the content or the directory is missing.
            Err(Errno::NOENT) if self.dirs.stat(digest, mode)?.is_none() => {
                Err(StoreError::NotFound { digest: *digest })
            }
            Err(errno) => Err(StoreError::from_errno(errno, "link", name)),
        }
    }

    /// Copies an open file to a name. The name appears once the copy is complete.
    fn copy_into(
        &self,
        from: OwnedFd,
        mode: FileMode,
        dir: BorrowedFd<'_>,
        name: &Path,
    ) -> Result<(), StoreError> {
        let failed = |errno| StoreError::from_errno(errno, "copy", name);
        let failed_io = |error| StoreError::from_io(error, "copy", name);
        let mut staged = StagedFile::create(dir, Mode::RUSR | Mode::WUSR).map_err(failed_io)?;
        copy(&from, staged.file()).map_err(failed_io)?;
        rustix::fs::fchmod(staged.file(), mode.permissions()).map_err(failed)?;
        staged.rename_new(name).map_err(failed_io)
    }
}

fn copy(from: &OwnedFd, to: &mut File) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(&*to, from).is_ok() {
        return Ok(());
    }
    let mut from = File::from(from.try_clone()?);
    // The standard library lets the kernel copy where possible.
    io::copy(&mut from, to).map(drop)
}
