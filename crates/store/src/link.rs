//! Putting contents and trees where they are needed: by hard links, and by copies where there can be none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use conjure_base::Digest;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::folders::name_of;
use crate::store::{Inner, Store, Variant, Verify};
use crate::tree::Tree;

/// How many names are tried for a copy that is being written.
const ATTEMPTS: u32 = 1000;

/// Permission bits of the folders of a tree.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// How a content came to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// It is the store's own file.
    Hard,
    /// It is a copy: the place is on another file system, the file has as many links as it may, or the system does
    /// not let this user link it.
    Copied,
}

impl Store {
    /// Gives a content the name `name` in the open folder `folder`, at once and whole.
    ///
    /// # Errors
    /// `NotFound` when the store has no such content in this variant; `Exists` when the name is taken; `NoSpace` and
    /// others by the system.
    pub fn link_into(
        &self,
        digest: &Digest,
        variant: Variant,
        folder: impl AsFd,
        name: &Path,
    ) -> Result<Linked, StoreError> {
        check_name(name)?;
        let store = self.inner();
        store.touch(&store.hold()?, digest, variant)?;
        store.link_into(digest, variant, folder.as_fd(), name)
    }

    /// The same as a file of its own, which whoever has the folder may change: its blocks are shared where the file system can.
    ///
    /// # Errors
    /// As for [`Store::link_into`]; any variant of the content will do.
    pub fn copy_into(
        &self,
        digest: &Digest,
        variant: Variant,
        folder: impl AsFd,
        name: &Path,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let store = self.inner();
        store.touch(&store.hold()?, digest, variant)?;
        let from = self.get(digest, Verify::No)?.into_file();
        store.copy_into(from.into(), variant, folder.as_fd(), name, |_| Ok(()))
    }

    /// Puts all files of a tree beneath the open folder `folder`, making its folders with mode 0755. The folder should be
    /// new and empty; after a failure some of the files are there.
    ///
    /// # Errors
    /// As for [`Store::link_into`].
    pub fn link_tree(&self, tree: &Tree, folder: impl AsFd) -> Result<(), StoreError> {
        let store = self.inner();
        let hold = store.hold()?;
        let top = folder.as_fd();
        // The files come in the order of their paths, so those of one folder are together.
        let mut parent: Option<(&Path, OwnedFd)> = None;
        for file in tree.files() {
            let (path, variant) = (file.path(), file.variant());
            let above = path.parent().unwrap_or(Path::new(""));
            if parent.as_ref().is_none_or(|(open, _)| *open != above) {
                parent = Some((above, make_folders(top, above)?));
            }
            let Some((_, parent)) = &parent else { continue };
            let name = Path::new(path.file_name().unwrap_or_default());
            store.touch(&hold, file.digest(), variant)?;
            store.link_into(file.digest(), variant, parent.as_fd(), name)?;
        }
        Ok(())
    }
}

/// Opens the folder at `path` beneath `top`, making what is missing, through no link.
fn make_folders(top: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, StoreError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |errno, path: &Path| StoreError::of(errno, "make the folder", path);
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
            // Whatever mask of new files' modes the process has.
            rustix::fs::chmodat(&folder, name, FOLDER_MODE, AtFlags::empty())
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
        _ => Err(StoreError::of(Errno::INVAL, "link", name)),
    }
}

impl Inner {
    fn link_into(
        &self,
        digest: &Digest,
        variant: Variant,
        folder: BorrowedFd<'_>,
        name: &Path,
    ) -> Result<Linked, StoreError> {
        let from = self.folders.of(variant);
        match rustix::fs::linkat(from, name_of(digest).as_str(), folder, name, AtFlags::empty()) {
            Ok(()) => Ok(Linked::Hard),
            // Another file system; too many links; a file of somebody else's (`fs.protected_hardlinks`), or a file
            // system without links.
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let from = match self.open(digest, variant) {
                    Err(Errno::NOENT) => return Err(StoreError::Absent { digest: *digest }),
                    other => other.map_err(|errno| StoreError::of(errno, "copy", name))?,
                };
                self.copy_into(from, variant, folder, name, |_| Ok(())).map(|()| Linked::Copied)
            }
            // Either the content or the folder is not there.
            Err(Errno::NOENT) if self.folders.stat(digest, variant)?.is_none() => {
                match self.frozen(digest)? {
                    Some(frozen) if variant == Variant::Plain => self.link_frozen_into(&frozen, folder, name),
                    _ => Err(StoreError::Absent { digest: *digest }),
                }
            }
            Err(errno) => Err(StoreError::of(errno, "link", name)),
        }
    }

    /// Copies an open file to a name, which is taken once the copy is whole and `check` finds nothing wrong with what
    /// was copied.
    pub(crate) fn copy_into(
        &self,
        from: OwnedFd,
        variant: Variant,
        folder: BorrowedFd<'_>,
        name: &Path,
        check: impl Fn(&OwnedFd) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |errno| StoreError::of(errno, "copy", name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let draft = format!(".conjure-{}.tmp", self.next_name());
            let to = match rustix::fs::openat(folder, draft.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => continue,
                other => other.map_err(failed)?,
            };
            let copied = copy(&from, &to)
                .map_err(|error| StoreError::of_io(error, "copy", name))
                .and_then(|()| check(&from))
                .and_then(|()| rustix::fs::fchmod(&to, variant.mode()).map_err(failed))
                .and_then(|()| take_name(folder, &draft, name).map_err(failed));
            if copied.is_err() {
                // Nothing better can be done when this fails, too.
                let _ = rustix::fs::unlinkat(folder, draft.as_str(), AtFlags::empty());
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
    // The standard library has the kernel do it where it can.
    io::copy(&mut from, &mut to).map(drop)
}

/// Gives the draft its name, unless that is taken.
fn take_name(folder: BorrowedFd<'_>, draft: &str, name: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(folder, draft, folder, name, RenameFlags::NOREPLACE) {
        // The file system does not know the flag.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(folder, draft, folder, name, AtFlags::empty())?;
            rustix::fs::unlinkat(folder, draft, AtFlags::empty())
        }
        other => other,
    }
}
