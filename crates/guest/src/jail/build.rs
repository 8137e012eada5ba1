//! The new root: an empty file system in memory, filled place by place.
//!
//! Every path is resolved beneath the new root, links included, so that nothing of the old root is touched, whatever
//! lies in the jail.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, RawMode, ResolveFlags, fstat, mkdirat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use conjure_guest::protocol::{Access, Place, PlaceKind, SetupFailure, SetupStep};

use crate::sys::{self, Depth, MountChange};

use super::failure::{Done, at, because, of_io};
use super::sources::Source;

/// Enough for folders, links and some small files.
const ROOT_BYTES: &str = "1048576";
const ROOT_INODES: &str = "2048";

/// Nothing on it changes the user or is a device.
const HARMLESS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// A root that is being built.
#[derive(Debug)]
pub(super) struct Root {
    mount: OwnedFd,
    /// Mounts that become read-only when all is in place.
    unsealed: Vec<OwnedFd>,
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

impl Root {
    /// An empty root, hung over the one there is: this process goes on to see the old one.
    pub(super) fn new() -> Done<Self> {
        let options = [("size", ROOT_BYTES), ("nr_inodes", ROOT_INODES), ("mode", "0755")];
        let root = || -> Result<OwnedFd, Errno> {
            let mount = file_system("tmpfs", &options, HARMLESS)?;
            hang(&mount, CWD, "/", MoveMountFlags::empty())?;
            Ok(mount)
        };
        let mount = root().map_err(at(SetupStep::Root, "mount a root in memory"))?;
        Ok(Self { mount, unsealed: Vec::new() })
    }

    /// Makes a place. One of the host's is the next of `binds`.
    pub(super) fn make(
        &mut self,
        place: &Place,
        binds: &mut impl Iterator<Item = Option<Source>>,
    ) -> Done<()> {
        let path = place.path.as_str();
        let is_plain = path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'))
        });
        if !is_plain {
            let reason = "it must be absolute, and without `.` and `..`";
            return Err(because(SetupStep::Specification, format!("make `{path}` in the jail"), reason));
        }
        let refused = |errno| making(path)(errno);
        match &place.is {
            PlaceKind::Folder { mode } => self.folder(path, *mode).map(drop).map_err(refused),
            PlaceKind::File { mode, content } => self.file(path, *mode, content),
            PlaceKind::Link { target } => {
                let (parent, name) = self.parent(path).map_err(refused)?;
                symlinkat(target.as_str(), parent, name).map_err(refused)
            }
            PlaceKind::Bind(_) => match binds.next().flatten() {
                Some(source) => self.mount_source(path, source),
                None => Ok(()),
            },
            PlaceKind::Tmpfs { bytes, inodes, mode, access } => {
                let (bytes, inodes, mode) = (bytes.to_string(), inodes.to_string(), format!("{mode:o}"));
                let options = [("size", bytes.as_str()), ("nr_inodes", &inodes), ("mode", &mode)];
                let mount = file_system("tmpfs", &options, HARMLESS).map_err(refused)?;
                self.mount_at(path, &mount, true).map_err(refused)?;
                if *access == Access::ReadOnly {
                    self.unsealed.push(mount);
                }
                Ok(())
            }
            PlaceKind::Again { path: there } => {
                let copy = self.open(there, OFlags::PATH | OFlags::DIRECTORY).and_then(|found| clone(&found));
                self.mount_at(path, &copy.map_err(refused)?, true).map_err(refused)
            }
            PlaceKind::Proc => {
                let made = file_system("proc", &[], HARMLESS | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                    .and_then(|mount| self.mount_at(path, &mount, true).map(|()| mount));
                let mount = made.map_err(at(SetupStep::Proc, format!("mount the processes at `{path}`")))?;
                // Or commands could make themselves the last that are killed when memory runs out.
                self.unsealed.push(mount);
                Ok(())
            }
            PlaceKind::Terminals => {
                // All terminals of the machine are counted together: no jail may take them all.
                let options = [("ptmxmode", "0666"), ("mode", "0620"), ("max", "64")];
                let set = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
                let mount = file_system("devpts", &options, set).map_err(refused)?;
                self.mount_at(path, &mount, true).map_err(refused)
            }
            PlaceKind::Hidden => self.hide(path).map_err(refused),
            PlaceKind::Fixed => self.fix(path).map_err(refused),
        }
    }

    /// Hangs a file or folder of the host's in.
    pub(super) fn mount_source(&self, path: &str, source: Source) -> Done<()> {
        self.mount_at(path, &source.mount, source.is_folder).map_err(making(path))
    }

    /// Makes read-only what was to become so, and the root itself.
    pub(super) fn seal(&self) -> Done<()> {
        for mount in self.unsealed.iter().chain([&self.mount]) {
            read_only(mount, Depth::Top).map_err(at(SetupStep::Root, "make the jail's root read-only"))?;
        }
        Ok(())
    }

    fn file(&self, path: &str, mode: RawMode, content: &str) -> Done<()> {
        let (parent, name) = self.parent(path).map_err(making(path))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode)).map_err(making(path))?;
        let written = File::from(file).write_all(content.as_bytes());
        written.map_err(of_io(SetupStep::Root, format!("write `{path}` in the jail")))
    }

    /// The folder at a path, made with those above it where it is missing.
    fn folder(&self, path: &str, mode: RawMode) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.open(path, flags) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (parent, name) = self.parent(path)?;
        mkdirat(parent, name, Mode::from_raw_mode(mode))?;
        self.open(path, flags)
    }

    /// The folder above a path, made where it is missing, and the last name of the path.
    fn parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), Errno> {
        let (parent, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        Ok((self.folder(parent, 0o755)?, name))
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "/" } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.mount, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// What lies at a path, itself when it is a link; `None` when nothing does.
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

    /// Hangs a mount in, over what is there; makes a folder or file to hang it over where nothing is.
    fn mount_at(&self, path: &str, mount: &OwnedFd, is_folder: bool) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        let made = if is_folder {
            mkdirat(&parent, name, Mode::from_raw_mode(0o755))
        } else {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        };
        match made {
            Ok(()) | Err(Errno::EXIST) => {}
            // What is there already, on something for reading only, serves as well.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) if self.find(path)?.is_some() => {}
            Err(errno) => return Err(errno),
        }
        hang(mount, &parent, name, MoveMountFlags::empty())
    }

    fn hide(&self, path: &str) -> Result<(), Errno> {
        let Some((found, kind)) = self.find(path)? else { return Ok(()) };
        let cover = if kind.is_dir() {
            let set = HARMLESS | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_RDONLY;
            file_system("tmpfs", &[("nr_inodes", "2"), ("mode", "0555")], set)?
        } else {
            let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let null = open_tree(CWD, "/dev/null", clone)?;
            read_only(&null, Depth::Top)?;
            null
        };
        hang(&cover, &found, "", MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
    }

    fn fix(&self, path: &str) -> Result<(), Errno> {
        let Some((found, _)) = self.find(path)? else { return Ok(()) };
        let copy = clone(&found)?;
        read_only(&copy, Depth::Whole)?;
        hang(&copy, &found, "", MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
    }
}

fn making(path: &str) -> impl FnOnce(Errno) -> SetupFailure {
    at(SetupStep::Root, format!("make `{path}` in the jail"))
}

/// A new file system, which hangs nowhere yet.
fn file_system(name: &str, options: &[(&str, &str)], set: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, set)
}

/// What is at a place, with what is mounted below it, as a mount that hangs nowhere yet.
fn clone(place: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(place, "", flags)
}

fn hang(mount: &OwnedFd, at: impl AsFd, path: &str, flags: MoveMountFlags) -> Result<(), Errno> {
    move_mount(mount, "", at, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | flags)
}

fn read_only(mount: &OwnedFd, depth: Depth) -> Result<(), Errno> {
    let change = MountChange { set: HARMLESS_AND_FIXED, owners: None };
    sys::change_mount(mount.as_fd(), depth, change)
}

/// Nothing on it can be changed, either.
const HARMLESS_AND_FIXED: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_RDONLY.union(MountAttrFlags::MOUNT_ATTR_NOSUID);
