//! The folders that may be reached, and the only way into them: `openat2` beneath a folder's handle.
//!
//! A path is matched against the roots by its components; `..` and links are left to the kernel, which refuses
//! to leave the root, whatever happens to the tree meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use conjure_guest::protocol::{Access, ErrorCode, FolderNumbers, GuestError, Root};

use crate::error::{self, of_file};
use crate::quota::Allowance;

/// How often a path is resolved anew, at once and after a pause, when something was renamed or mounted meanwhile, anywhere
/// on the machine: about a second in all.
const RACES: usize = 64;
const PATIENT_RACES: usize = 1000;

/// The roots, in the guest.
#[derive(Debug)]
pub(crate) struct Roots {
    roots: Vec<OpenRoot>,
    workdir: String,
}

#[derive(Debug)]
struct OpenRoot {
    root: Root,
    /// Opened at the greeting, before any command could put something else in its place.
    folder: Option<OwnedFd>,
}

impl Roots {
    /// Opens the roots. One that does not exist yet is looked for at each operation.
    pub(crate) fn open(roots: &[Root], workdir: &str) -> Self {
        let open = |root: &Root| OpenRoot { root: root.clone(), folder: open_folder(&root.path).ok() };
        Self { roots: roots.iter().map(open).collect(), workdir: workdir.to_owned() }
    }

    /// Which folders they are, in order.
    pub(crate) fn numbers(&self) -> Vec<Option<FolderNumbers>> {
        let numbers = |open: &OpenRoot| {
            let stat = fstat(open.folder.as_ref()?).ok()?;
            Some(FolderNumbers { device: stat.st_dev, inode: stat.st_ino })
        };
        self.roots.iter().map(numbers).collect()
    }

    /// The handles of the roots that exist, in order, for [`Roots::reach`] in a worker.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.roots.iter().filter_map(|root| root.folder.as_ref()).map(AsFd::as_fd)
    }

    /// The roots in a worker, whose handles are copies of [`Roots::descriptors`].
    pub(super) fn reach<'a>(
        &'a self,
        mut handles: impl Iterator<Item = OwnedFd>,
        allowance: Option<Allowance<'a>>,
    ) -> Reach<'a> {
        let roots = self
            .roots
            .iter()
            .map(|open| {
                let folder = if open.folder.is_some() { handles.next() } else { None };
                (&open.root, folder)
            })
            .collect();
        Reach { roots, workdir: &self.workdir, allowance }
    }
}

/// The folder at this path, as a handle.
pub(crate) fn open_folder(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The roots, in a worker.
#[derive(Debug)]
pub(super) struct Reach<'a> {
    roots: Vec<(&'a Root, Option<OwnedFd>)>,
    workdir: &'a str,
    allowance: Option<Allowance<'a>>,
}

/// A path beneath a root.
#[derive(Debug)]
pub(super) struct Place<'a> {
    /// As it was given, for messages.
    pub(super) given: &'a str,
    /// The root's handle.
    pub(super) root: OwnedFd,
    pub(super) access: Access,
    /// Beneath the root: components without empty ones and `.`; may hold `..`.
    pub(super) rest: Vec<String>,
    /// How much may be written there; `None`: any.
    pub(super) allowance: Option<&'a Allowance<'a>>,
}

/// The components of a path that name something.
pub(super) fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty() && *component != ".")
}

impl Reach<'_> {
    /// Finds the root that a path lies beneath.
    pub(super) fn place<'p>(&'p self, path: &'p str) -> Result<Place<'p>, GuestError> {
        if path.is_empty() || path.contains('\0') {
            let message = "a path must not be empty nor hold a NUL character";
            return Err(error::error(ErrorCode::BadRequest, message));
        }
        let base = if path.starts_with('/') { "" } else { self.workdir };
        let whole: Vec<&str> = components(base).chain(components(path)).collect();
        let found = self
            .roots
            .iter()
            .map(|(root, folder)| (root, folder, components(&root.path).collect::<Vec<_>>()))
            .filter(|(_, _, prefix)| whole.starts_with(prefix))
            .max_by_key(|(_, _, prefix)| prefix.len());
        let Some((root, folder, prefix)) = found else {
            let roots: Vec<String> = self.roots.iter().map(|(root, _)| format!("`{}`", root.path)).collect();
            let message = format!(
                "`{path}` is outside the folders that may be used: {}; name a file in one of them",
                roots.join(", ")
            );
            return Err(error::error(ErrorCode::PathNotAllowed, message));
        };
        let handle = match folder {
            Some(folder) => folder.try_clone().map_err(|error| super::worker::failed(&error, path, "reach")),
            None => open_folder(&root.path).map_err(|errno| of_file(errno, &root.path, "open the folder")),
        }?;
        let rest = whole.into_iter().skip(prefix.len()).map(str::to_owned).collect();
        let is_limited = |to: &&Allowance<'_>| prefix.starts_with(&components(to.path).collect::<Vec<_>>());
        let allowance = self.allowance.as_ref().filter(is_limited);
        Ok(Place { given: path, root: handle, access: root.access, rest, allowance })
    }

    /// Refuses what may not be changed, though its path lies beneath a root that may: a root for reading only
    /// that lies within, reached by `..` or by a link.
    pub(super) fn check_writable(&self, place: &Place<'_>, folder: &OwnedFd) -> Result<(), GuestError> {
        let identity = |stat: &Stat| (stat.st_dev, stat.st_ino);
        let reach = |errno| of_file(errno, place.given, "change");
        if place.access == Access::ReadOnly {
            return Err(read_only(place.given));
        }
        let fixed: Vec<_> = self
            .roots
            .iter()
            .filter(|(root, _)| root.access == Access::ReadOnly)
            .filter_map(|(_, folder)| folder.as_ref().and_then(|folder| fstat(folder).ok()))
            .map(|stat| identity(&stat))
            .collect();
        if fixed.is_empty() {
            return Ok(());
        }
        let top = identity(&fstat(&place.root).map_err(reach)?);
        let mut at =
            folder.try_clone().map_err(|error| super::worker::failed(&error, place.given, "change"))?;
        loop {
            let here = identity(&fstat(&at).map_err(reach)?);
            if here == top {
                return Ok(());
            }
            if fixed.contains(&here) {
                return Err(read_only(place.given));
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, "..", flags, Mode::empty()).map_err(reach)?;
            if identity(&fstat(&at).map_err(reach)?) == here {
                // The top of everything: the folder was moved out meanwhile.
                return Err(of_file(Errno::XDEV, place.given, "change"));
            }
        }
    }
}

fn read_only(path: &str) -> GuestError {
    let message = format!("cannot change `{path}`: it lies in a folder for reading only; write elsewhere");
    error::error(ErrorCode::PathNotAllowed, message)
}

impl Place<'_> {
    /// Opens what lies at `path` beneath the root.
    #[expect(
        clippy::disallowed_methods,
        reason = "nobody tells when a storm of renames is over; it blocks anyway"
    )]
    pub(super) fn open_beneath(&self, path: &[String], flags: OFlags) -> Result<OwnedFd, Errno> {
        let joined = if path.is_empty() { ".".to_owned() } else { path.join("/") };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for race in 0..PATIENT_RACES {
            match openat2(&self.root, joined.as_str(), flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // Something was renamed while `..` was resolved.
                Err(Errno::AGAIN | Errno::INTR) if race < RACES => {}
                Err(Errno::AGAIN | Errno::INTR) => thread::sleep(Duration::from_millis(1)),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens the file or folder for reading. Pipes and devices do not hold this up.
    pub(super) fn open(&self, doing: &str) -> Result<(OwnedFd, Stat), GuestError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_beneath(&self.rest, flags).map_err(|errno| of_file(errno, self.given, doing))?;
        let stat = fstat(&file).map_err(|errno| of_file(errno, self.given, doing))?;
        Ok((file, stat))
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, doing: &str) -> Result<(OwnedFd, Stat), GuestError> {
        let (file, stat) = self.open(doing)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file, stat)),
            FileType::Directory => Err(of_file(Errno::ISDIR, self.given, doing)),
            _ => Err(of_file(Errno::NXIO, self.given, doing)),
        }
    }
}
