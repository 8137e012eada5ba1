//! Giving a session's place the folder that a spare sandbox has as its workspace, with the files that the session has there.
//!
//! A bind mount follows the folder, not its path: so the spare's empty folder takes the place of the session's, and what the
//! session had is moved into it.
//!
//! ```text
//! <place>/workspace/   where the session works
//! <place>/incoming/    there only while this is done: what is in it belongs in the workspace
//! ```
//!
//! State: `incoming`, which is the note of what is under way. It is there before the two folders change places, and goes when
//! all files are in the workspace. After a crash at any point in between, whoever uses the workspace next first moves what is
//! left there ([`settle`]). Each step is one rename, so a file is in one of the two folders at any time, and never lost. A lock
//! of the kernel's on the place keeps others out meanwhile; it ends with the process.
//!
//! Nothing is flushed to the disk. What commands write is not either, so after a crash of the machine a workspace has what the
//! file system had written by then; and a rename is one step of its journal, so also then a file is in one of the two folders.
//! Flushing would cost each claim some milliseconds, and promise nothing about what the files hold.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::host::unavailable;
use crate::error::{SandboxError, SandboxErrorKind};

const WORKSPACE: &str = "workspace";
const INCOMING: &str = "incoming";

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a session has in its workspace when it gets another folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Had {
    Nothing,
    /// They are in the other folder now.
    Files,
}

/// Has the folder `from`, which is empty, be the workspace `to`, with all that was there, unless nobody wants that any more: then
/// nothing is done. Whoever must know that the folder lies elsewhere now is told by `moved`, also when what comes after that
/// fails. Blocks.
///
/// # Errors
/// When the two lie on different file systems or belong to different users, when `from` is not empty, and by the system. The
/// session has its files then as it had them, or [`settle`] completes what was begun. Those of `moved`.
pub(crate) fn hand_over(
    from: &Path,
    to: &Path,
    is_wanted: &AtomicBool,
    moved: impl FnOnce() -> Result<(), SandboxError>,
) -> Result<Had, SandboxError> {
    let failed = |errno| unavailable("give away", from, errno);
    let parent = from.parent().ok_or_else(|| failed(Errno::INVAL))?;
    let name = from.file_name().ok_or_else(|| failed(Errno::INVAL))?;
    let spare = rustix::fs::openat(CWD, parent, FOLDER, Mode::empty()).map_err(failed)?;
    let place = Locked::of(to)?;
    // Whoever uses the workspace next waits for the lock, or has had it.
    if !is_wanted.load(Ordering::Acquire) {
        let message = "whoever wanted the sandbox is gone";
        return Err(SandboxError::new(SandboxErrorKind::Cancelled, message));
    }
    place.settle()?;
    let there = |errno| unavailable("give away a folder to", to, errno);
    let was = statat(&place.folder, WORKSPACE, AtFlags::SYMLINK_NOFOLLOW).map_err(there)?;
    check(&spare, name, &was).map_err(there)?;
    // An empty folder gives way by itself, and nothing is in between.
    match renameat(&spare, name, &place.folder, WORKSPACE) {
        Ok(()) => {
            place.permit_as(&was);
            return moved().map(|()| Had::Nothing);
        }
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(there(errno)),
    }
    renameat_with(&spare, name, &place.folder, INCOMING, RenameFlags::NOREPLACE).map_err(there)?;
    let exchanged = renameat_with(&place.folder, INCOMING, &place.folder, WORKSPACE, RenameFlags::EXCHANGE);
    if let Err(errno) = exchanged {
        // The session has its own, still.
        let _ = unlinkat(&place.folder, INCOMING, AtFlags::REMOVEDIR);
        return Err(there(errno));
    }
    let told = moved();
    place.settle()?;
    told.map(|()| Had::Files)
}

/// Completes what a host that died, or gave up, left half done with this workspace. Nothing may run in it. Blocks, also while
/// somebody does just that.
///
/// # Errors
/// When files cannot be moved; they stay where they are, and it is tried again the next time.
pub(crate) fn settle(workspace: &Path) -> Result<(), SandboxError> {
    match workspace.parent().map(Path::symlink_metadata) {
        Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        // Usually nothing is to be done. Somebody may be about to begin, and only the lock tells.
        _ => Locked::of(workspace)?.settle(),
    }
}

/// Looks whether the folder can take the place of the one that is like `was`.
fn check(spare: &OwnedFd, name: &std::ffi::OsStr, was: &Stat) -> Result<(), Errno> {
    let folder = rustix::fs::openat(spare, name, FOLDER, Mode::empty())?;
    let is = fstat(&folder)?;
    if FileType::from_raw_mode(was.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    if is.st_dev != was.st_dev {
        return Err(Errno::XDEV);
    }
    // As after a host that died over a sandbox of another user: its files are to be taken back first.
    if was.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    match names(&folder)?.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(Errno::NOTEMPTY),
        Some(Err(errno)) => Err(errno),
    }
}

/// The place around a workspace, with nobody else at it.
struct Locked<'a> {
    workspace: &'a Path,
    folder: OwnedFd,
}

impl<'a> Locked<'a> {
    fn of(workspace: &'a Path) -> Result<Self, SandboxError> {
        let failed = |errno| unavailable("lock", workspace, errno);
        let around = workspace.parent().ok_or_else(|| failed(Errno::INVAL))?;
        let folder = rustix::fs::openat(CWD, around, FOLDER, Mode::empty()).map_err(failed)?;
        // Where a file system has no locks, only one process has the data folder anyway.
        match flock(&folder, FlockOperation::LockExclusive) {
            Ok(()) | Err(Errno::NOTSUP | Errno::NOLCK) => Ok(Self { workspace, folder }),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Moves what is incoming into the workspace.
    fn settle(&self) -> Result<(), SandboxError> {
        let failed = |errno| unavailable("bring files back into", self.workspace, errno);
        let incoming = match rustix::fs::openat(&self.folder, INCOMING, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            // Commands may have taken the permissions of their own workspace away.
            Err(Errno::ACCESS) => self.open_closed(INCOMING).map_err(failed)?,
            other => other.map_err(failed)?,
        };
        let was = fstat(&incoming).map_err(failed)?;
        self.open_writable(&incoming).map_err(failed)?;
        let workspace = match rustix::fs::openat(&self.folder, WORKSPACE, FOLDER, Mode::empty()) {
            Err(Errno::ACCESS) => self.open_closed(WORKSPACE),
            other => other,
        };
        let workspace = workspace.map_err(failed)?;
        for name in names(&incoming).map_err(failed)? {
            let name = name.map_err(failed)?;
            match move_into(&incoming, &workspace, &name) {
                Ok(()) => {}
                Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(self.taken(&name)),
                Err(errno) => return Err(failed(errno)),
            }
        }
        self.permit_as(&was);
        match unlinkat(&self.folder, INCOMING, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn open_closed(&self, name: &str) -> Result<OwnedFd, Errno> {
        let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.folder, name, path, Mode::empty())?;
        self.open_writable(&folder)?;
        rustix::fs::openat(&self.folder, name, FOLDER, Mode::empty())
    }

    /// Lets the host list and change a folder.
    fn open_writable(&self, folder: &OwnedFd) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(fstat(folder)?.st_mode);
        if mode.contains(Mode::RWXU) { Ok(()) } else { chmod(folder, mode | Mode::RWXU) }
    }

    /// Gives the workspace the permissions that commands gave the folder before.
    fn permit_as(&self, was: &Stat) {
        let wanted = Mode::from_raw_mode(was.st_mode);
        let is = statat(&self.folder, WORKSPACE, AtFlags::SYMLINK_NOFOLLOW);
        if is.is_ok_and(|is| Mode::from_raw_mode(is.st_mode) == wanted) {
            return;
        }
        if let Err(error) = rustix::fs::chmodat(&self.folder, WORKSPACE, wanted, AtFlags::empty()) {
            tracing::warn!(%error, workspace = %self.workspace.display(), "a workspace has other permissions than before");
        }
    }

    fn taken(&self, name: &CStr) -> SandboxError {
        let (name, workspace) = (name.to_string_lossy(), self.workspace.display());
        let incoming = self.workspace.with_file_name(INCOMING);
        let message = format!(
            "`{name}` is in the workspace `{workspace}` and in `{}`, from where it was to be moved there; keep one of them",
            incoming.display()
        );
        SandboxError::new(SandboxErrorKind::Exists, message)
    }
}

impl Drop for Locked<'_> {
    /// Not only by closing: a process that is just being started has the folder for a moment, too.
    fn drop(&mut self) {
        let _ = flock(&self.folder, FlockOperation::Unlock);
    }
}

/// Moves something from one folder to another, where its name must be free.
fn move_into(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match super::rename_new_at(from, to, name) {
        // Its own `..` changes, for which a folder must be writable.
        Err(Errno::ACCESS | Errno::PERM) => {
            let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(from, name, path | OFlags::DIRECTORY, Mode::empty())?;
            let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode);
            chmod(&folder, mode | Mode::RWXU)?;
            let moved = super::rename_new_at(from, to, name);
            chmod(&folder, mode)?;
            moved
        }
        other => other,
    }
}

/// By its handle, so that nothing else can have taken its place.
fn chmod(folder: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode)
}

/// The names in a folder, read anew.
fn names(folder: &OwnedFd) -> Result<impl Iterator<Item = Result<CString, Errno>>, Errno> {
    // All of them first: what is moved out while it is read could hide others.
    let all: Vec<_> = Dir::read_from(folder)?
        .filter_map(|entry| match entry {
            Ok(entry) => {
                let name = entry.file_name();
                (name != c"." && name != c"..").then(|| Ok(name.to_owned()))
            }
            Err(errno) => Some(Err(errno)),
        })
        .collect();
    Ok(all.into_iter())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    struct Two {
        _folder: tempfile::TempDir,
        spare: PathBuf,
        workspace: PathBuf,
    }

    fn two() -> Two {
        let folder = tempfile::tempdir().unwrap();
        let [spare, workspace] = ["1-2", "ses_1"].map(|name| {
            let path = folder.path().join(name).join(WORKSPACE);
            fs::create_dir_all(&path).unwrap();
            path
        });
        Two { _folder: folder, spare, workspace }
    }

    fn fill(folder: &Path) -> BTreeSet<String> {
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/file"), "deep").unwrap();
        fs::write(folder.join(".hidden"), "hidden").unwrap();
        symlink("/etc/passwd", folder.join("link")).unwrap();
        fs::set_permissions(folder.join("a"), fs::Permissions::from_mode(0o500)).unwrap();
        names_in(folder)
    }

    fn names_in(folder: &Path) -> BTreeSet<String> {
        let names = fs::read_dir(folder).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A folder cannot be moved by a user who may not write to it.
    fn move_file(from: &Path, to: &Path) {
        let permissions = fs::symlink_metadata(from).unwrap().permissions();
        let is_folder = from.is_dir() && !from.is_symlink();
        if is_folder {
            fs::set_permissions(from, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::rename(from, to).unwrap();
        if is_folder {
            fs::set_permissions(to, permissions).unwrap();
        }
    }

    #[test]
    fn an_empty_workspace_becomes_the_spares_folder() {
        let Two { spare, workspace, _folder } = two();
        let inode = fs::metadata(&spare).unwrap().ino();
        assert_eq!(hand_over(&spare, &workspace, &AtomicBool::new(true), || Ok(())), Ok(Had::Nothing));
        assert_eq!(fs::metadata(&workspace).unwrap().ino(), inode);
        assert!(!spare.exists());
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_begun() {
        let Two { spare, workspace, _folder } = two();
        let had = fill(&workspace);
        let inode = fs::metadata(&workspace).unwrap().ino();
        let error = hand_over(&spare, &workspace, &AtomicBool::new(false), || Ok(())).unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
        assert_eq!((fs::metadata(&workspace).unwrap().ino(), names_in(&workspace)), (inode, had));
        assert!(spare.exists());
    }

    #[test]
    fn what_a_session_had_is_in_the_other_folder_as_it_was() {
        let Two { spare, workspace, _folder } = two();
        let had = fill(&workspace);
        fs::set_permissions(&workspace, fs::Permissions::from_mode(0o500)).unwrap();
        let inode = fs::metadata(&spare).unwrap().ino();
        assert_eq!(hand_over(&spare, &workspace, &AtomicBool::new(true), || Ok(())), Ok(Had::Files));
        let found = fs::metadata(&workspace).unwrap();
        assert_eq!((found.ino(), found.permissions().mode() & 0o777), (inode, 0o500));
        assert_eq!(names_in(&workspace), had);
        assert_eq!(fs::read_to_string(workspace.join("a/b/file")).unwrap(), "deep");
        assert_eq!(fs::metadata(workspace.join("a")).unwrap().permissions().mode() & 0o777, 0o500);
        assert_eq!(names_in(workspace.parent().unwrap()), [WORKSPACE.to_owned()].into());
    }

    #[test]
    fn what_broke_off_at_any_point_is_completed_by_whoever_comes_next() {
        // Before the two changed places, right after that, and after any number of files.
        for moved in [None, Some(0), Some(1), Some(2), Some(3)] {
            let Two { spare, workspace, _folder } = two();
            let had = fill(&workspace);
            let incoming = workspace.with_file_name(INCOMING);
            fs::rename(&spare, &incoming).unwrap();
            if let Some(moved) = moved {
                let by = RenameFlags::EXCHANGE;
                renameat_with(CWD, &incoming, CWD, &workspace, by).unwrap();
                for name in had.iter().take(moved) {
                    move_file(&incoming.join(name), &workspace.join(name));
                }
            }
            settle(&workspace).unwrap();
            assert_eq!(names_in(&workspace), had, "{moved:?}");
            assert_eq!(fs::read_to_string(workspace.join("a/b/file")).unwrap(), "deep");
            assert!(!incoming.exists());
            settle(&workspace).unwrap();
        }
    }

    #[test]
    fn what_would_hide_a_file_is_refused_and_both_stay() {
        let Two { spare, workspace, _folder } = two();
        fs::write(workspace.join("file"), "new").unwrap();
        let incoming = workspace.with_file_name(INCOMING);
        fs::rename(&spare, &incoming).unwrap();
        fs::write(incoming.join("file"), "old").unwrap();
        let error = settle(&workspace).unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Exists, "{error}");
        assert_eq!(fs::read_to_string(incoming.join("file")).unwrap(), "old");
        fs::remove_file(workspace.join("file")).unwrap();
        settle(&workspace).unwrap();
        assert_eq!(fs::read_to_string(workspace.join("file")).unwrap(), "old");
    }

    #[test]
    fn a_folder_that_is_not_empty_or_not_there_is_not_given_away() {
        let Two { spare, workspace, _folder } = two();
        fill(&workspace);
        fs::write(spare.join("file"), "").unwrap();
        assert!(hand_over(&spare, &workspace, &AtomicBool::new(true), || Ok(())).is_err());
        assert!(spare.join("file").exists() && workspace.join("a/b/file").exists());
        fs::remove_dir_all(spare.parent().unwrap()).unwrap();
        assert!(hand_over(&spare, &workspace, &AtomicBool::new(true), || Ok(())).is_err());
        assert!(workspace.join("a/b/file").exists());
        assert_eq!(names_in(workspace.parent().unwrap()), [WORKSPACE.to_owned()].into());
    }

    #[test]
    fn whoever_follows_the_folder_knows_where_it_is_also_when_files_cannot_come_along() {
        let Two { spare, workspace, _folder } = two();
        fs::write(workspace.join("file"), "old").unwrap();
        let inode = fs::metadata(&spare).unwrap().ino();
        let mut told = None;
        let moved = || {
            told = Some(fs::metadata(&workspace).unwrap().ino());
            // Something that is in the way of what is to come.
            fs::write(workspace.join("file"), "new").unwrap();
            Ok(())
        };
        let error = hand_over(&spare, &workspace, &AtomicBool::new(true), moved).unwrap_err();
        assert_eq!((error.kind(), told), (SandboxErrorKind::Exists, Some(inode)));
        fs::remove_file(workspace.join("file")).unwrap();
        settle(&workspace).unwrap();
        assert_eq!(fs::read_to_string(workspace.join("file")).unwrap(), "old");
    }
}
