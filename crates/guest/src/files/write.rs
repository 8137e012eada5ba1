//! Writes and replaces files atomically: a new file in the same directory takes the old one's name at the end.
//!
//! A failure, an abort or a crash before that leaves the old file unchanged. The new file is removed. Only when
//! the worker is killed does it remain, which happens when the disk does not respond.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use conjure_guest::protocol::{DATA_MAX, DiskUsage, ErrorCode, GuestError, Reply};

use super::io::io_failure;
use super::resolve::{ResolvedPath, WorkerRoots, components};
use crate::error::{self, file_error};
use crate::quota::{WorkerWriteBudget, estimate_usage, plus, quota_error, usage_from_stat};
use crate::sys;

/// The maximum size of a text for a replacement.
const TEXT_MAX: u64 = 32 * 1024 * 1024;

/// The maximum number of links to follow at the end of a path.
const LINKS_MAX: usize = 40;

/// Permission bits of a new file.
const NEW_MODE: u32 = 0o644;

/// Writes a file from chunks of content.
pub(super) fn write(
    roots: &WorkerRoots<'_>,
    path: &str,
    mode: Option<u32>,
    input: &mut impl Read,
) -> Result<Reply, GuestError> {
    let mut target = WriteTarget::find(roots, path, "write", IfMissing::Create)?;
    let result = target.stage(mode).and_then(|mut staged| {
        let mut piece = vec![0; DATA_MAX];
        loop {
            let mut header = [0; 4];
            input.read_exact(&mut header).map_err(|_| truncated_error(path))?;
            let length = u32::from_le_bytes(header) as usize;
            if length == 0 {
                return staged.commit();
            }
            let piece = piece.get_mut(..length).ok_or_else(|| truncated_error(path))?;
            input.read_exact(piece).map_err(|_| truncated_error(path))?;
            staged.write(piece)?;
        }
    });
    if result.is_err() {
        target.remove_made_dirs();
    }
    result
}

/// Replaces the only occurrence of a text.
pub(super) fn replace(
    roots: &WorkerRoots<'_>,
    path: &str,
    old: &str,
    new: &str,
) -> Result<Reply, GuestError> {
    const DOING: &str = "edit";
    if old.is_empty() {
        let message = "the text to replace is empty; give the text as it stands in the file";
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    let target = WriteTarget::find(roots, path, DOING, IfMissing::Fail)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&target.dir, target.name.as_str(), flags, Mode::empty())
        .map_err(|errno| file_error(errno, path, DOING))?;
    let mut bytes = Vec::new();
    File::from(file)
        .take(TEXT_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(&error, path, DOING))?;
    if bytes.len() as u64 > TEXT_MAX {
        let message =
            format!("cannot edit `{path}`: it has more than {TEXT_MAX} bytes; edit it with a program");
        return Err(error::error(ErrorCode::TooLarge, message));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        error::error(ErrorCode::NotText, format!("cannot edit `{path}`: it is not UTF-8 text"))
    })?;
    let Some(at) = text.find(old) else {
        let message = format!(
            "cannot edit `{path}`: the text to replace does not occur in it; view the file and copy it exactly, \
             with its white space"
        );
        return Err(error::error(ErrorCode::NoMatch, message));
    };
    // Overlapping occurrences count, too.
    if text.rfind(old) != Some(at) {
        let count = text.matches(old).count().max(2);
        let message = format!(
            "cannot edit `{path}`: the text to replace occurs {count} times; add lines around it until it is unique"
        );
        return Err(error::error(ErrorCode::NotUnique, message));
    }
    let (before, rest) = text.split_at(at);
    let (_, after) = rest.split_at(old.len());
    let mut staged = target.stage(None)?;
    for piece in [before, new, after] {
        staged.write(piece.as_bytes())?;
    }
    staged.commit()
}

/// Creates a directory and missing parents. An existing directory is not changed.
pub(super) fn make_dir(roots: &WorkerRoots<'_>, path: &str, mode: u32) -> Result<Reply, GuestError> {
    const DOING: &str = "make";
    let path_in_root = roots.resolve(path)?;
    roots.check_writable(&path_in_root, &path_in_root.root)?;
    let mut created = Vec::new();
    let result = make_dirs(roots, &path_in_root, &path_in_root.rest, &mut created, DOING).and_then(|_| {
        let Some((parent, name)) = created.last() else { return Ok(()) };
        // By a handle, since the name may be a link by now. The owner keeps full access.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name.as_str(), flags, Mode::empty())
            .and_then(|dir| rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode & 0o777 | 0o700)))
            .map_err(|errno| file_error(errno, path, DOING))
    });
    if let Err(error) = result {
        remove(&created);
        return Err(error);
    }
    Ok(Reply::MakeDir { created: created.len() as u64 })
}

fn truncated_error(path: &str) -> GuestError {
    let message = format!("cannot write `{path}`: the content was cut off; nothing was changed");
    error::error(ErrorCode::Cancelled, message)
}

/// What to do when directories or the file are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Create,
    Fail,
}

/// The file to write. It need not exist.
#[derive(Debug)]
struct WriteTarget<'a> {
    path: &'a str,
    doing: &'static str,
    dir: OwnedFd,
    name: String,
    /// The regular file that exists now.
    former: Option<Stat>,
    /// The directories that were created, each with its parent's handle; outermost first.
    created: Vec<(OwnedFd, String)>,
    /// How much may be written. `None`: unlimited.
    budget: Option<&'a WorkerWriteBudget<'a>>,
}

impl<'a> WriteTarget<'a> {
    /// Finds the directory and name of `path`, following links at its end.
    fn find(
        roots: &'a WorkerRoots<'a>,
        path: &'a str,
        doing: &'static str,
        missing: IfMissing,
    ) -> Result<Self, GuestError> {
        let path_in_root = roots.resolve(path)?;
        let mut created = Vec::new();
        match Self::find_in(roots, &path_in_root, doing, missing, &mut created) {
            Ok((dir, name, former)) => {
                Ok(Self { path, doing, dir, name, former, created, budget: path_in_root.budget })
            }
            Err(error) => {
                remove(&created);
                Err(error)
            }
        }
    }

    fn find_in(
        roots: &WorkerRoots<'_>,
        path_in_root: &ResolvedPath<'_>,
        doing: &'static str,
        missing: IfMissing,
        created: &mut Vec<(OwnedFd, String)>,
    ) -> Result<(OwnedFd, String, Option<Stat>), GuestError> {
        let failed = |errno| file_error(errno, path_in_root.given, doing);
        roots.check_writable(path_in_root, &path_in_root.root)?;
        let mut rest = path_in_root.rest.clone();
        for _ in 0..LINKS_MAX {
            let Some((name, parents)) = rest.split_last().filter(|(name, _)| *name != "..") else {
                return Err(failed(Errno::ISDIR));
            };
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let dir = match path_in_root.open_beneath(parents, flags) {
                Err(Errno::NOENT) if missing == IfMissing::Create => {
                    make_dirs(roots, path_in_root, parents, created, doing)?
                }
                other => other.map_err(failed)?,
            };
            roots.check_writable(path_in_root, &dir)?;
            let stat = match rustix::fs::statat(&dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) if missing == IfMissing::Create => return Ok((dir, name.clone(), None)),
                Err(errno) => return Err(failed(errno)),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {
                    let is_writable = rustix::fs::accessat(
                        &dir,
                        name.as_str(),
                        rustix::fs::Access::WRITE_OK,
                        AtFlags::empty(),
                    );
                    is_writable.map_err(failed)?;
                    return Ok((dir, name.clone(), Some(stat)));
                }
                FileType::Symlink => {}
                FileType::Directory => return Err(failed(Errno::ISDIR)),
                _ => return Err(failed(Errno::NXIO)),
            }
            let link = rustix::fs::readlinkat(&dir, name.as_str(), Vec::new()).map_err(failed)?;
            let link = link.to_str().ok().filter(|link| !link.starts_with('/')).ok_or(Errno::XDEV);
            let link: Vec<String> = components(link.map_err(failed)?).map(str::to_owned).collect();
            rest = parents.iter().cloned().chain(link).collect();
        }
        Err(failed(Errno::LOOP))
    }

    /// Creates a staged file for the target.
    fn stage(&self, mode: Option<u32>) -> Result<StagedFile<'_>, GuestError> {
        let failed = |errno| file_error(errno, self.path, self.doing);
        // The old file uses its space until the end.
        self.check_room(0, None)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = rustix::process::getpid();
        let stamp = crate::clock::now().as_nanos();
        // No other process uses this name. A machine that crashed may have left such a file.
        for attempt in 0..100 {
            let name = format!(".conjure-{own}-{stamp:x}-{attempt}.tmp", own = own.as_raw_nonzero());
            match rustix::fs::openat(&self.dir, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    let staged = StagedFile { target: self, name: Some(name), file: file.into(), size: 0 };
                    staged.apply_metadata(mode).map_err(failed)?;
                    return Ok(staged);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EXIST))
    }

    /// Checks that the quota allows a file of `size` bytes. `staged` is the staged file as written so far.
    fn check_room(&self, size: u64, staged: Option<&File>) -> Result<(), GuestError> {
        let Some(budget) = self.budget else { return Ok(()) };
        let so_far = || {
            let staged = staged.and_then(|staged| rustix::fs::fstat(staged).ok());
            usage_of(&self.created, staged.as_ref())
        };
        let whole = estimate_usage(size, self.created.len() as u64);
        budget.check(whole, so_far).map_err(|excess| quota_error(&excess, self.path, self.doing))
    }

    /// Removes the directories that were created for a file that was not written.
    fn remove_made_dirs(&mut self) {
        remove(&self.created);
    }
}

/// Removes created directories, innermost first. A directory that is not empty stays.
fn remove(created: &[(OwnedFd, String)]) {
    for (dir, name) in created.iter().rev() {
        if rustix::fs::unlinkat(dir, name.as_str(), AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
}

/// Returns the disk usage of created directories and a file.
fn usage_of(created: &[(OwnedFd, String)], file: Option<&Stat>) -> DiskUsage {
    let dirs = created
        .iter()
        .filter_map(|(dir, name)| rustix::fs::statat(dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok());
    let stats = dirs.chain(file.copied());
    stats.fold(DiskUsage::default(), |sum, stat| plus(sum, usage_from_stat(&stat)))
}

/// Creates the missing directories of a path, and opens the last. Each parent is opened beneath the root.
fn make_dirs(
    roots: &WorkerRoots<'_>,
    path_in_root: &ResolvedPath<'_>,
    path: &[String],
    created: &mut Vec<(OwnedFd, String)>,
    doing: &'static str,
) -> Result<OwnedFd, GuestError> {
    let failed = |errno| file_error(errno, path_in_root.given, doing);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut dir = path_in_root.open_beneath(&[], flags).map_err(failed)?;
    for (depth, name) in (1..).zip(path) {
        let upto = path.get(..depth).unwrap_or(path);
        dir = match path_in_root.open_beneath(upto, flags) {
            Err(Errno::NOENT) => {
                roots.check_writable(path_in_root, &dir)?;
                if let Some(budget) = path_in_root.budget {
                    // The quota must not be exceeded even for a moment: the guest would end all programs.
                    let whole = estimate_usage(0, created.len() as u64 + 1);
                    let failed = |excess| quota_error(&excess, path_in_root.given, doing);
                    budget.check(whole, || usage_of(created, None)).map_err(failed)?;
                }
                match rustix::fs::mkdirat(&dir, name.as_str(), Mode::from_raw_mode(0o755)) {
                    Ok(()) => created.push((dir, name.clone())),
                    // Another process created it meanwhile, or it is a broken link.
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                path_in_root.open_beneath(upto, flags).map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
    }
    Ok(dir)
}

/// A staged file. It is removed unless it is committed.
#[derive(Debug)]
struct StagedFile<'a> {
    target: &'a WriteTarget<'a>,
    /// `None` once it has the target's name.
    name: Option<String>,
    file: File,
    size: u64,
}

impl StagedFile<'_> {
    /// Sets owner and permissions.
    fn apply_metadata(&self, mode: Option<u32>) -> Result<(), Errno> {
        if let Some(former) = &self.target.former {
            let own = rustix::fs::fstat(&self.file)?;
            if (own.st_uid, own.st_gid) != (former.st_uid, former.st_gid) {
                let owner = rustix::process::Uid::from_raw(former.st_uid);
                let group = rustix::process::Gid::from_raw(former.st_gid);
                // Without the right to change owners, the file keeps the current owner.
                let _ = rustix::fs::fchown(&self.file, Some(owner), Some(group));
            }
        }
        let former = self.target.former.as_ref().map(|former| former.st_mode);
        let mode = mode.or(former).unwrap_or(NEW_MODE) & 0o777;
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        if sys::is_termination_pending() {
            return Err(truncated_error(self.target.path));
        }
        let (target, size) = (self.target, self.size + bytes.len() as u64);
        target.check_room(size, Some(&self.file))?;
        self.file.write_all(bytes).map_err(|error| io_failure(&error, target.path, target.doing))?;
        self.size = size;
        Ok(())
    }

    fn commit(mut self) -> Result<Reply, GuestError> {
        let target = self.target;
        if sys::is_termination_pending() {
            return Err(truncated_error(target.path));
        }
        if let Some(name) = &self.name {
            rustix::fs::renameat(&target.dir, name.as_str(), &target.dir, target.name.as_str())
                .map_err(|errno| file_error(errno, target.path, target.doing))?;
            self.name = None;
        }
        let dirs = target.created.len() as u64;
        Ok(Reply::Write { size: self.size, existed: target.former.is_some(), dirs })
    }
}

impl Drop for StagedFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A failure here cannot be handled.
            let _ = rustix::fs::unlinkat(&self.target.dir, name.as_str(), AtFlags::empty());
        }
    }
}
