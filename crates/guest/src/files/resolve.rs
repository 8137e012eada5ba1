//! Resolves paths beneath the roots. The only access is `openat2` beneath a root's handle.
//!
//! A path is matched against the roots by its components. The kernel resolves `..` and links, and never leaves the
//! root, even when the tree changes meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use conjure_guest::protocol::{Access, DirId, ErrorCode, GuestError, Root};

use crate::error::{self, file_error};
use crate::quota::WorkerWriteBudget;

/// How often a path is resolved again when something on the machine was renamed or mounted meanwhile: first at
/// once, then after a pause. About a second in all.
const RESOLVE_RETRIES: usize = 64;
const RETRIES_MAX: usize = 1000;

/// The roots, in the guest.
#[derive(Debug)]
pub(crate) struct Roots {
    roots: Vec<OpenRoot>,
    workdir: String,
}

#[derive(Debug)]
struct OpenRoot {
    root: Root,
    /// Opened during the handshake, before any command can replace the directory.
    dir: Option<OwnedFd>,
}

impl Roots {
    /// Opens the roots. A root that does not exist yet is opened again for each operation.
    pub(crate) fn open(roots: &[Root], workdir: &str) -> Self {
        let open = |root: &Root| OpenRoot { root: root.clone(), dir: open_dir(&root.path).ok() };
        Self { roots: roots.iter().map(open).collect(), workdir: workdir.to_owned() }
    }

    /// Returns the identities of the roots, in order.
    pub(crate) fn ids(&self) -> Vec<Option<DirId>> {
        let numbers = |open: &OpenRoot| {
            let stat = fstat(open.dir.as_ref()?).ok()?;
            Some(DirId { device: stat.st_dev, inode: stat.st_ino })
        };
        self.roots.iter().map(numbers).collect()
    }

    /// Returns the handles of the existing roots, in order, for [`Roots::in_worker`].
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.roots.iter().filter_map(|root| root.dir.as_ref()).map(AsFd::as_fd)
    }

    /// Creates the worker's view of the roots. `handles` are copies of [`Roots::descriptors`].
    pub(super) fn in_worker<'a>(
        &'a self,
        mut handles: impl Iterator<Item = OwnedFd>,
        budget: Option<WorkerWriteBudget<'a>>,
    ) -> WorkerRoots<'a> {
        let roots = self
            .roots
            .iter()
            .map(|open| {
                let dir = if open.dir.is_some() { handles.next() } else { None };
                (&open.root, dir)
            })
            .collect();
        WorkerRoots { roots, workdir: &self.workdir, budget }
    }
}

/// Opens the directory at this path.
pub(crate) fn open_dir(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The roots, in a worker.
#[derive(Debug)]
pub(super) struct WorkerRoots<'a> {
    roots: Vec<(&'a Root, Option<OwnedFd>)>,
    workdir: &'a str,
    budget: Option<WorkerWriteBudget<'a>>,
}

/// A path, resolved to a root.
#[derive(Debug)]
pub(super) struct ResolvedPath<'a> {
    /// The path as requested, for messages.
    pub(super) given: &'a str,
    /// The root's handle.
    pub(super) root: OwnedFd,
    pub(super) access: Access,
    /// The path beneath the root: components without empty ones and `.`. It may contain `..`.
    pub(super) rest: Vec<String>,
    /// How much may be written there. `None`: unlimited.
    pub(super) budget: Option<&'a WorkerWriteBudget<'a>>,
}

/// Returns the components of a path, without empty ones and `.`.
pub(super) fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty() && *component != ".")
}

impl WorkerRoots<'_> {
    /// Finds the root that contains a path.
    pub(super) fn resolve<'p>(&'p self, path: &'p str) -> Result<ResolvedPath<'p>, GuestError> {
        if path.is_empty() || path.contains('\0') {
            let message = "a path must not be empty or contain a NUL character";
            return Err(error::error(ErrorCode::BadRequest, message));
        }
        let base = if path.starts_with('/') { "" } else { self.workdir };
        let whole: Vec<&str> = components(base).chain(components(path)).collect();
        let found = self
            .roots
            .iter()
            .map(|(root, dir)| (root, dir, components(&root.path).collect::<Vec<_>>()))
            .filter(|(_, _, prefix)| whole.starts_with(prefix))
            .max_by_key(|(_, _, prefix)| prefix.len());
        let Some((root, dir, prefix)) = found else {
            let roots: Vec<String> = self.roots.iter().map(|(root, _)| format!("`{}`", root.path)).collect();
            let message = format!(
                "`{path}` is outside the directories that may be used: {}; name a file in one of them",
                roots.join(", ")
            );
            return Err(error::error(ErrorCode::PathNotAllowed, message));
        };
        let handle = match dir {
            Some(dir) => dir.try_clone().map_err(|error| super::io::io_failure(&error, path, "reach")),
            None => open_dir(&root.path).map_err(|errno| file_error(errno, &root.path, "open the directory")),
        }?;
        let rest = whole.into_iter().skip(prefix.len()).map(str::to_owned).collect();
        let is_limited =
            |to: &&WorkerWriteBudget<'_>| prefix.starts_with(&components(to.path).collect::<Vec<_>>());
        let budget = self.budget.as_ref().filter(is_limited);
        Ok(ResolvedPath { given: path, root: handle, access: root.access, rest, budget })
    }

    /// Checks that a directory may be changed. Its path lies beneath a writable root, but `..` or a link may lead to
    /// a read-only root inside.
    pub(super) fn check_writable(
        &self,
        resolved: &ResolvedPath<'_>,
        dir: &OwnedFd,
    ) -> Result<(), GuestError> {
        let identity = |stat: &Stat| (stat.st_dev, stat.st_ino);
        let roots = |errno| file_error(errno, resolved.given, "change");
        if resolved.access == Access::ReadOnly {
            return Err(read_only(resolved.given));
        }
        let fixed: Vec<_> = self
            .roots
            .iter()
            .filter(|(root, _)| root.access == Access::ReadOnly)
            .filter_map(|(_, dir)| dir.as_ref().and_then(|dir| fstat(dir).ok()))
            .map(|stat| identity(&stat))
            .collect();
        if fixed.is_empty() {
            return Ok(());
        }
        let top = identity(&fstat(&resolved.root).map_err(roots)?);
        let mut at =
            dir.try_clone().map_err(|error| super::io::io_failure(&error, resolved.given, "change"))?;
        loop {
            let here = identity(&fstat(&at).map_err(roots)?);
            if here == top {
                return Ok(());
            }
            if fixed.contains(&here) {
                return Err(read_only(resolved.given));
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, "..", flags, Mode::empty()).map_err(roots)?;
            if identity(&fstat(&at).map_err(roots)?) == here {
                // This is the top of the file system: the directory was moved out meanwhile.
                return Err(file_error(Errno::XDEV, resolved.given, "change"));
            }
        }
    }
}

fn read_only(path: &str) -> GuestError {
    let message =
        format!("cannot change `{path}`: it is in a read-only directory; write to another directory");
    error::error(ErrorCode::PathNotAllowed, message)
}

impl ResolvedPath<'_> {
    /// Opens `path` beneath the root.
    #[expect(
        clippy::disallowed_methods,
        reason = "nobody tells when a storm of renames is over; it blocks anyway"
    )]
    pub(super) fn open_beneath(&self, path: &[String], flags: OFlags) -> Result<OwnedFd, Errno> {
        let joined = if path.is_empty() { ".".to_owned() } else { path.join("/") };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for race in 0..RETRIES_MAX {
            match openat2(&self.root, joined.as_str(), flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // Something was renamed while the kernel resolved `..`.
                Err(Errno::AGAIN | Errno::INTR) if race < RESOLVE_RETRIES => {}
                Err(Errno::AGAIN | Errno::INTR) => thread::sleep(Duration::from_millis(1)),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens the file or directory for reading. Pipes and devices do not block.
    pub(super) fn open(&self, doing: &str) -> Result<(OwnedFd, Stat), GuestError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file =
            self.open_beneath(&self.rest, flags).map_err(|errno| file_error(errno, self.given, doing))?;
        let stat = fstat(&file).map_err(|errno| file_error(errno, self.given, doing))?;
        Ok((file, stat))
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, doing: &str) -> Result<(OwnedFd, Stat), GuestError> {
        let (file, stat) = self.open(doing)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file, stat)),
            FileType::Directory => Err(file_error(Errno::ISDIR, self.given, doing)),
            _ => Err(file_error(Errno::NXIO, self.given, doing)),
        }
    }
}
