//! Builds the root file system of a jail: an in-memory file system to which mounts are attached.
//!
//! Every path is resolved beneath the new root, including links. So nothing of the old root is changed, whatever the
//! jail contains.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, RawMode, ResolveFlags, fstat, mkdirat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use conjure_guest::protocol::{Access, MountEntry, MountKind, SetupError, SetupStep};

use crate::sys::{self, MountChange, MountDepth};

use super::mount_sources::DetachedMount;
use super::setup_error::{SetupResult, from_io_error, setup_error, with_reason};

/// The size of the root file system: enough for directories, links and some small files.
const ROOT_BYTES: &str = "1048576";
const ROOT_INODES: &str = "2048";

/// No set-user-ID programs, and no devices.
const RESTRICTED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// A root file system that is being built.
#[derive(Debug)]
pub(super) struct RootfsBuilder {
    mount: OwnedFd,
    /// Mounts that become read-only at the end.
    unsealed: Vec<OwnedFd>,
}

impl AsFd for RootfsBuilder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

impl RootfsBuilder {
    /// Mounts an empty root over the current one. This process still sees the current one.
    pub(super) fn new() -> SetupResult<Self> {
        let options = [("size", ROOT_BYTES), ("nr_inodes", ROOT_INODES), ("mode", "0755")];
        let root = || -> Result<OwnedFd, Errno> {
            let mount = file_system("tmpfs", &options, RESTRICTED)?;
            attach(&mount, CWD, "/", MoveMountFlags::empty())?;
            Ok(mount)
        };
        let mount = root().map_err(setup_error(SetupStep::Root, "mount a root in memory"))?;
        Ok(Self { mount, unsealed: Vec::new() })
    }

    /// Creates an entry. A bind mount uses the next of `binds`.
    pub(super) fn make(
        &mut self,
        entry: &MountEntry,
        binds: &mut impl Iterator<Item = Option<DetachedMount>>,
    ) -> SetupResult<()> {
        let path = entry.path.as_str();
        let is_plain = path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'))
        });
        if !is_plain {
            let reason = "it must be absolute, and without `.` and `..`";
            return Err(with_reason(SetupStep::Specification, format!("make `{path}` in the jail"), reason));
        }
        let failed = |errno| setup_failed(path)(errno);
        match &entry.kind {
            MountKind::Dir { mode } => self.dir(path, *mode).map(drop).map_err(failed),
            MountKind::File { mode, content } => self.file(path, *mode, content),
            MountKind::Link { target } => {
                let (parent, name) = self.parent(path).map_err(failed)?;
                symlinkat(target.as_str(), parent, name).map_err(failed)
            }
            MountKind::Bind(_) => match binds.next().flatten() {
                Some(source) => self.mount_source(path, source),
                None => Ok(()),
            },
            MountKind::Tmpfs { bytes, inodes, mode, access } => {
                let (bytes, inodes, mode) = (bytes.to_string(), inodes.to_string(), format!("{mode:o}"));
                let options = [("size", bytes.as_str()), ("nr_inodes", &inodes), ("mode", &mode)];
                let mount = file_system("tmpfs", &options, RESTRICTED).map_err(failed)?;
                self.mount_at(path, &mount, true).map_err(failed)?;
                if *access == Access::ReadOnly {
                    self.unsealed.push(mount);
                }
                Ok(())
            }
            MountKind::SubdirBind { path: there } => {
                let copy = self.open(there, OFlags::PATH | OFlags::DIRECTORY).and_then(|found| clone(&found));
                self.mount_at(path, &copy.map_err(failed)?, true).map_err(failed)
            }
            MountKind::Proc => {
                let made = file_system("proc", &[], RESTRICTED | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                    .and_then(|mount| self.mount_at(path, &mount, true).map(|()| mount));
                let mount = made.map_err(setup_error(
                    SetupStep::Proc,
                    format!("mount the process file system at `{path}`"),
                ))?;
                // `/proc` becomes read-only at the end. Otherwise commands could lower their own out-of-memory score.
                self.unsealed.push(mount);
                Ok(())
            }
            MountKind::DevPts => {
                // The terminals of the whole machine share one limit. No jail may use them all.
                let options = [("ptmxmode", "0666"), ("mode", "0620"), ("max", "64")];
                let set = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
                let mount = file_system("devpts", &options, set).map_err(failed)?;
                self.mount_at(path, &mount, true).map_err(failed)
            }
            MountKind::Masked => self.mask(path).map_err(failed),
            MountKind::ReadOnlyOverlay => self.cover_read_only(path).map_err(failed),
        }
    }

    /// Attaches a file or directory of the host.
    pub(super) fn mount_source(&self, path: &str, source: DetachedMount) -> SetupResult<()> {
        self.mount_at(path, &source.mount, source.is_dir).map_err(setup_failed(path))
    }

    /// Makes the collected mounts and the root itself read-only.
    pub(super) fn seal(&self) -> SetupResult<()> {
        for mount in self.unsealed.iter().chain([&self.mount]) {
            read_only(mount, MountDepth::Single)
                .map_err(setup_error(SetupStep::Root, "make the jail's root read-only"))?;
        }
        Ok(())
    }

    fn file(&self, path: &str, mode: RawMode, content: &str) -> SetupResult<()> {
        let (parent, name) = self.parent(path).map_err(setup_failed(path))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode)).map_err(setup_failed(path))?;
        let written = File::from(file).write_all(content.as_bytes());
        written.map_err(from_io_error(SetupStep::Root, format!("write `{path}` in the jail")))
    }

    /// Opens the directory at a path. Creates it and its parents if they are missing.
    fn dir(&self, path: &str, mode: RawMode) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.open(path, flags) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (parent, name) = self.parent(path)?;
        mkdirat(parent, name, Mode::from_raw_mode(mode))?;
        self.open(path, flags)
    }

    /// Opens the parent directory of a path, and creates it if it is missing. Also returns the last component.
    fn parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), Errno> {
        let (parent, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        Ok((self.dir(parent, 0o755)?, name))
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "/" } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.mount, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Opens what is at a path, without following a final link. `None` when there is nothing.
    fn find(&self, path: &str) -> Result<Option<(OwnedFd, FileType)>, Errno> {
        match self.open(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(found) => {
                let stat = fstat(&found)?;
                Ok(Some((found, FileType::from_raw_mode(stat.st_mode))))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Attaches a mount at a path, over an existing entry. Creates a directory or file if there is none.
    fn mount_at(&self, path: &str, mount: &OwnedFd, is_dir: bool) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        let made = if is_dir {
            mkdirat(&parent, name, Mode::from_raw_mode(0o755))
        } else {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => {}
            // On a read-only file system, an existing entry serves as well.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) if self.find(path)?.is_some() => {}
            Err(errno) => return Err(errno),
        }
        attach(mount, &parent, name, MoveMountFlags::empty())
    }

    fn mask(&self, path: &str) -> Result<(), Errno> {
        let Some((found, kind)) = self.find(path)? else { return Ok(()) };
        let cover = if kind.is_dir() {
            let set = RESTRICTED | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
            file_system("tmpfs", &[("nr_inodes", "2"), ("mode", "0555")], set)?
        } else {
            let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let null = open_tree(CWD, "/dev/null", clone)?;
            read_only(&null, MountDepth::Single)?;
            null
        };
        attach(&cover, &found, "", MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
    }

    fn cover_read_only(&self, path: &str) -> Result<(), Errno> {
        let Some((found, _)) = self.find(path)? else { return Ok(()) };
        let copy = clone(&found)?;
        read_only(&copy, MountDepth::Recursive)?;
        attach(&copy, &found, "", MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
    }
}

fn setup_failed(path: &str) -> impl FnOnce(Errno) -> SetupError {
    setup_error(SetupStep::Root, format!("make `{path}` in the jail"))
}

/// Creates a detached file system.
fn file_system(name: &str, options: &[(&str, &str)], set: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, set)
}

/// Clones what is at a path, with the mounts below it, as a detached mount.
fn clone(entry: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(entry, "", flags)
}

fn attach(mount: &OwnedFd, at: impl AsFd, path: &str, flags: MoveMountFlags) -> Result<(), Errno> {
    move_mount(mount, "", at, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | flags)
}

fn read_only(mount: &OwnedFd, depth: MountDepth) -> Result<(), Errno> {
    let change = MountChange { set: RESTRICTED_READ_ONLY, owners: None };
    sys::change_mount(mount.as_fd(), depth, change)
}

/// Like [`RESTRICTED`], and read-only.
const RESTRICTED_READ_ONLY: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_RDONLY.union(MountAttrFlags::MOUNT_ATTR_NOSUID);
