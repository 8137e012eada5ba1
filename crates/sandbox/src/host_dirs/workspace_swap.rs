//! Swaps the workspace of a warm sandbox with the workspace of the session that claims it.
//!
//! A bind mount follows the directory, not its path. So the empty directory of the warm sandbox replaces the
//! session's directory, and the session's files are moved into it.
//!
//! ```text
//! <dir>/workspace/   where the session works
//! <dir>/staging/     exists only during the swap: its files belong in the workspace
//! ```
//!
//! State: `staging`, the record of a swap in progress. It is created before the two directories are exchanged, and
//! removed when all files are in the workspace. After a crash in between, the next user of the workspace first moves
//! the remaining files ([`finish_swap`]). Each step is one rename, so a file is always in one of the two directories.
//! A kernel lock on the directory excludes other users meanwhile; it ends with the process.
//!
//! Nothing is flushed to the disk, like the writes of commands. After a crash of the machine, a workspace has the
//! data that the file system had written by then. A rename is atomic in the file system's journal, so each file is
//! still in one of the two directories. A flush would cost each claim some milliseconds, and would guarantee nothing
//! about the content of the files.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_fs::FileLock;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fstat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::dirs_state::unavailable;
use crate::error::{SandboxError, SandboxErrorKind};

const WORKSPACE: &str = "workspace";
const STAGING: &str = "staging";

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether the session had files in its workspace before the swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionFiles {
    /// It had none.
    WereAbsent,
    /// They were moved into the new directory.
    WereMoved,
}

/// Replaces the workspace `to` by the empty directory `from`, and moves all files of the old workspace into it. It
/// does nothing when the claim is no longer wanted. It calls `on_moved` as soon as the directory has its new path, also
/// when a later step fails. Blocks.
///
/// # Errors
/// When the two are on different file systems or belong to different users, when `from` is not empty, and errors of
/// the system. Then the session has its files as before, or [`finish_swap`] completes the swap. Errors of `on_moved`
/// are also returned.
pub(crate) fn swap_workspace(
    from: &Path,
    to: &Path,
    is_wanted: &AtomicBool,
    on_moved: impl FnOnce() -> Result<(), SandboxError>,
) -> Result<SessionFiles, SandboxError> {
    let failed = |errno| unavailable("swap", from, errno);
    let parent = from.parent().ok_or_else(|| failed(Errno::INVAL))?;
    let name = from.file_name().ok_or_else(|| failed(Errno::INVAL))?;
    let warm_parent = rustix::fs::openat(CWD, parent, DIR, Mode::empty()).map_err(failed)?;
    let target = LockedDir::lock(to)?;
    // Checked under the lock. A later user of the workspace waits for the lock; an earlier one had it before.
    if !is_wanted.load(Ordering::Acquire) {
        let message = "the claim was cancelled";
        return Err(SandboxError::new(SandboxErrorKind::Cancelled, message));
    }
    target.finish_swap()?;
    let failed_at_target = |errno| unavailable("swap another workspace into", to, errno);
    let before = statat(&target.dir, WORKSPACE, AtFlags::SYMLINK_NOFOLLOW).map_err(failed_at_target)?;
    check(&warm_parent, name, &before).map_err(failed_at_target)?;
    // An empty directory is replaced in one step.
    match renameat(&warm_parent, name, &target.dir, WORKSPACE) {
        Ok(()) => {
            target.restore_permissions(&before);
            return on_moved().map(|()| SessionFiles::WereAbsent);
        }
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(failed_at_target(errno)),
    }
    renameat_with(&warm_parent, name, &target.dir, STAGING, RenameFlags::NOREPLACE)
        .map_err(failed_at_target)?;
    let exchanged = renameat_with(&target.dir, STAGING, &target.dir, WORKSPACE, RenameFlags::EXCHANGE);
    if let Err(errno) = exchanged {
        // The session still uses its own directory.
        let _ = unlinkat(&target.dir, STAGING, AtFlags::REMOVEDIR);
        return Err(failed_at_target(errno));
    }
    let notified = on_moved();
    target.finish_swap()?;
    notified.map(|()| SessionFiles::WereMoved)
}

/// Completes a swap that was interrupted. No process may run in the workspace. Blocks, also while another thread
/// completes it.
///
/// # Errors
/// When files cannot be moved. They stay where they are, and the next call tries again.
pub(crate) fn finish_swap(workspace: &Path) -> Result<(), SandboxError> {
    match workspace.parent().map(Path::symlink_metadata) {
        Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        // Usually there is nothing to do. But another swap may be about to start, and only the lock shows that.
        _ => LockedDir::lock(workspace)?.finish_swap(),
    }
}

/// Checks that the directory can replace the one described by `before`.
fn check(warm_parent: &OwnedFd, name: &std::ffi::OsStr, before: &Stat) -> Result<(), Errno> {
    let dir = rustix::fs::openat(warm_parent, name, DIR, Mode::empty())?;
    let stat = fstat(&dir)?;
    if FileType::from_raw_mode(before.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    if stat.st_dev != before.st_dev {
        return Err(Errno::XDEV);
    }
    // A sandbox of another user may have left the directory in a crash. Then the owner of its files must be restored
    // first.
    if before.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    match names(&dir)?.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(Errno::NOTEMPTY),
        Some(Err(errno)) => Err(errno),
    }
}

/// The directory around a workspace, locked.
struct LockedDir<'a> {
    workspace: &'a Path,
    dir: OwnedFd,
    /// `None` on a file system without locks, where only one process uses the data directory anyway.
    _lock: Option<FileLock>,
}

impl<'a> LockedDir<'a> {
    fn lock(workspace: &'a Path) -> Result<Self, SandboxError> {
        let failed = |errno| unavailable("lock", workspace, errno);
        let parent = workspace.parent().ok_or_else(|| failed(Errno::INVAL))?;
        let dir = rustix::fs::openat(CWD, parent, DIR, Mode::empty()).map_err(failed)?;
        let locked = dir.try_clone().map_err(|error| unavailable("lock", workspace, error))?;
        let lock = match FileLock::exclusive(locked) {
            Ok(lock) => Some(lock),
            Err(Errno::NOTSUP | Errno::NOLCK) => None,
            Err(errno) => return Err(failed(errno)),
        };
        Ok(Self { workspace, dir, _lock: lock })
    }

    /// Moves the files of `staging` into the workspace.
    fn finish_swap(&self) -> Result<(), SandboxError> {
        let failed = |errno| unavailable("bring files back into", self.workspace, errno);
        let staging = match rustix::fs::openat(&self.dir, STAGING, DIR, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            // Commands may have removed the permissions of their own workspace.
            Err(Errno::ACCESS) => self.open_without_permissions(STAGING).map_err(failed)?,
            other => other.map_err(failed)?,
        };
        let before = fstat(&staging).map_err(failed)?;
        self.open_writable(&staging).map_err(failed)?;
        let workspace = match rustix::fs::openat(&self.dir, WORKSPACE, DIR, Mode::empty()) {
            Err(Errno::ACCESS) => self.open_without_permissions(WORKSPACE),
            other => other,
        };
        let workspace = workspace.map_err(failed)?;
        for name in names(&staging).map_err(failed)? {
            let name = name.map_err(failed)?;
            match move_files(&staging, &workspace, &name) {
                Ok(()) => {}
                Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(self.name_taken(&name)),
                Err(errno) => return Err(failed(errno)),
            }
        }
        self.restore_permissions(&before);
        match unlinkat(&self.dir, STAGING, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn open_without_permissions(&self, name: &str) -> Result<OwnedFd, Errno> {
        let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.dir, name, path, Mode::empty())?;
        self.open_writable(&dir)?;
        rustix::fs::openat(&self.dir, name, DIR, Mode::empty())
    }

    /// Gives the host permission to list and change a directory.
    fn open_writable(&self, dir: &OwnedFd) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(fstat(dir)?.st_mode);
        if mode.contains(Mode::RWXU) { Ok(()) } else { chmod(dir, mode | Mode::RWXU) }
    }

    /// Restores the permissions that commands had given the old directory.
    fn restore_permissions(&self, before: &Stat) {
        let mode = Mode::from_raw_mode(before.st_mode);
        let stat = statat(&self.dir, WORKSPACE, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode) == mode) {
            return;
        }
        if let Err(error) = rustix::fs::chmodat(&self.dir, WORKSPACE, mode, AtFlags::empty()) {
            tracing::warn!(%error, workspace = %self.workspace.display(), "the permissions of a workspace could not be restored");
        }
    }

    fn name_taken(&self, name: &CStr) -> SandboxError {
        let (name, workspace) = (name.to_string_lossy(), self.workspace.display());
        let staging = self.workspace.with_file_name(STAGING);
        let message = format!(
            "`{name}` exists in both the workspace `{workspace}` and `{}`, so it cannot be moved into the workspace; remove one of them",
            staging.display()
        );
        SandboxError::new(SandboxErrorKind::Exists, message)
    }
}

/// Moves an entry from one directory to another, where its name must be free.
fn move_files(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let rename = || renameat_with(from, name, to, name, RenameFlags::NOREPLACE);
    match rename() {
        // The move changes the `..` entry of the moved directory, so the directory must be writable.
        Err(Errno::ACCESS | Errno::PERM) => {
            let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(from, name, path | OFlags::DIRECTORY, Mode::empty())?;
            let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode);
            chmod(&dir, mode | Mode::RWXU)?;
            let on_moved = rename();
            chmod(&dir, mode)?;
            on_moved
        }
        other => other,
    }
}

/// Uses the handle: another directory may have the name by now.
fn chmod(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), mode)
}

/// The names in a directory, read from its start.
fn names(dir: &OwnedFd) -> Result<impl Iterator<Item = Result<CString, Errno>>, Errno> {
    // All names are read first: moving entries out of a directory while it is read could hide others.
    let all: Vec<_> = Dir::read_from(dir)?
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
        _dir: tempfile::TempDir,
        warm_parent: PathBuf,
        workspace: PathBuf,
    }

    fn two() -> Two {
        let dir = tempfile::tempdir().unwrap();
        let [warm_parent, workspace] = ["1-2", "ses_1"].map(|name| {
            let path = dir.path().join(name).join(WORKSPACE);
            fs::create_dir_all(&path).unwrap();
            path
        });
        Two { _dir: dir, warm_parent, workspace }
    }

    fn fill(dir: &Path) -> BTreeSet<String> {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "deep").unwrap();
        fs::write(dir.join(".hidden"), "hidden").unwrap();
        symlink("/etc/passwd", dir.join("link")).unwrap();
        fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o500)).unwrap();
        names_in(dir)
    }

    fn names_in(dir: &Path) -> BTreeSet<String> {
        let names = fs::read_dir(dir).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A directory cannot be moved by a user who may not write to it.
    fn move_file(from: &Path, to: &Path) {
        let permissions = fs::symlink_metadata(from).unwrap().permissions();
        let is_dir = from.is_dir() && !from.is_symlink();
        if is_dir {
            fs::set_permissions(from, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::rename(from, to).unwrap();
        if is_dir {
            fs::set_permissions(to, permissions).unwrap();
        }
    }

    #[test]
    fn an_empty_workspace_becomes_the_spares_directory() {
        let Two { warm_parent, workspace, _dir } = two();
        let inode = fs::metadata(&warm_parent).unwrap().ino();
        assert_eq!(
            swap_workspace(&warm_parent, &workspace, &AtomicBool::new(true), || Ok(())),
            Ok(SessionFiles::WereAbsent)
        );
        assert_eq!(fs::metadata(&workspace).unwrap().ino(), inode);
        assert!(!warm_parent.exists());
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_begun() {
        let Two { warm_parent, workspace, _dir } = two();
        let had = fill(&workspace);
        let inode = fs::metadata(&workspace).unwrap().ino();
        let error = swap_workspace(&warm_parent, &workspace, &AtomicBool::new(false), || Ok(())).unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Cancelled);
        assert_eq!((fs::metadata(&workspace).unwrap().ino(), names_in(&workspace)), (inode, had));
        assert!(warm_parent.exists());
    }

    #[test]
    fn what_a_session_had_is_in_the_other_directory_as_it_was() {
        let Two { warm_parent, workspace, _dir } = two();
        let had = fill(&workspace);
        fs::set_permissions(&workspace, fs::Permissions::from_mode(0o500)).unwrap();
        let inode = fs::metadata(&warm_parent).unwrap().ino();
        assert_eq!(
            swap_workspace(&warm_parent, &workspace, &AtomicBool::new(true), || Ok(())),
            Ok(SessionFiles::WereMoved)
        );
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
        for on_moved in [None, Some(0), Some(1), Some(2), Some(3)] {
            let Two { warm_parent, workspace, _dir } = two();
            let had = fill(&workspace);
            let staging = workspace.with_file_name(STAGING);
            fs::rename(&warm_parent, &staging).unwrap();
            if let Some(on_moved) = on_moved {
                let by = RenameFlags::EXCHANGE;
                renameat_with(CWD, &staging, CWD, &workspace, by).unwrap();
                for name in had.iter().take(on_moved) {
                    move_file(&staging.join(name), &workspace.join(name));
                }
            }
            finish_swap(&workspace).unwrap();
            assert_eq!(names_in(&workspace), had, "{on_moved:?}");
            assert_eq!(fs::read_to_string(workspace.join("a/b/file")).unwrap(), "deep");
            assert!(!staging.exists());
            finish_swap(&workspace).unwrap();
        }
    }

    #[test]
    fn what_would_hide_a_file_is_refused_and_both_stay() {
        let Two { warm_parent, workspace, _dir } = two();
        fs::write(workspace.join("file"), "new").unwrap();
        let staging = workspace.with_file_name(STAGING);
        fs::rename(&warm_parent, &staging).unwrap();
        fs::write(staging.join("file"), "old").unwrap();
        let error = finish_swap(&workspace).unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Exists, "{error}");
        assert_eq!(fs::read_to_string(staging.join("file")).unwrap(), "old");
        fs::remove_file(workspace.join("file")).unwrap();
        finish_swap(&workspace).unwrap();
        assert_eq!(fs::read_to_string(workspace.join("file")).unwrap(), "old");
    }

    #[test]
    fn a_directory_that_is_not_empty_or_not_there_is_not_given_away() {
        let Two { warm_parent, workspace, _dir } = two();
        fill(&workspace);
        fs::write(warm_parent.join("file"), "").unwrap();
        assert!(swap_workspace(&warm_parent, &workspace, &AtomicBool::new(true), || Ok(())).is_err());
        assert!(warm_parent.join("file").exists() && workspace.join("a/b/file").exists());
        fs::remove_dir_all(warm_parent.parent().unwrap()).unwrap();
        assert!(swap_workspace(&warm_parent, &workspace, &AtomicBool::new(true), || Ok(())).is_err());
        assert!(workspace.join("a/b/file").exists());
        assert_eq!(names_in(workspace.parent().unwrap()), [WORKSPACE.to_owned()].into());
    }

    #[test]
    fn whoever_follows_the_directory_knows_where_it_is_also_when_files_cannot_come_along() {
        let Two { warm_parent, workspace, _dir } = two();
        fs::write(workspace.join("file"), "old").unwrap();
        let inode = fs::metadata(&warm_parent).unwrap().ino();
        let mut notified = None;
        let on_moved = || {
            notified = Some(fs::metadata(&workspace).unwrap().ino());
            // Something that is in the way of what is to come.
            fs::write(workspace.join("file"), "new").unwrap();
            Ok(())
        };
        let error = swap_workspace(&warm_parent, &workspace, &AtomicBool::new(true), on_moved).unwrap_err();
        assert_eq!((error.kind(), notified), (SandboxErrorKind::Exists, Some(inode)));
        fs::remove_file(workspace.join("file")).unwrap();
        finish_swap(&workspace).unwrap();
        assert_eq!(fs::read_to_string(workspace.join("file")).unwrap(), "old");
    }
}
