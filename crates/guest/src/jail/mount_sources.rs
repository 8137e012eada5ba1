//! Opens the host's files and directories for a jail, as detached mounts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use rustix::process::{Signal, WaitOptions};

use conjure_guest::protocol::{
    Access, BecomeUser, Bind, BindContent, IfMissing, JailSpec, MountKind, OutputMount, OwnerMapping,
    SetupStep, SymlinkPolicy,
};

use crate::sys::{self, MountChange, MountDepth};

use super::chown_tree::chown_to;
use super::setup_error::{SetupResult, from_io_error, setup_error, with_reason};

/// The detached mounts for a jail.
#[derive(Debug)]
pub(super) struct MountSources {
    /// One for each bind mount, in order. `None` for an optional one whose source does not exist.
    pub(super) binds: Vec<Option<DetachedMount>>,
    pub(super) output: Option<OutputMounts>,
    /// Paths whose owner had to be changed, because it could not be mapped.
    pub(super) chowned_paths: Vec<String>,
}

/// A file or directory of the host as a detached mount.
#[derive(Debug)]
pub(super) struct DetachedMount {
    pub(super) mount: OwnedFd,
    pub(super) is_dir: bool,
}

/// The two mounts of the directory for spill files.
#[derive(Debug)]
pub(super) struct OutputMounts {
    /// For the guest. It is never attached.
    pub(super) writable: OwnedFd,
    /// For commands.
    pub(super) readable: DetachedMount,
}

impl MountSources {
    /// Opens all sources. Needs the right to mount: that of root, or of a new user namespace.
    pub(super) fn open(spec: &JailSpec) -> SetupResult<Self> {
        let mut opener = MountOpener {
            become_user: spec.identity.become_user,
            owners: HashMap::new(),
            chowned_paths: Vec::new(),
        };
        let mut binds = Vec::new();
        for entry in &spec.mounts {
            if let MountKind::Bind(bind) = &entry.kind {
                binds.push(opener.open(bind)?);
            }
        }
        let output = spec.output.as_ref().map(|output| opener.open_output(output)).transpose()?;
        Ok(Self { binds, output, chowned_paths: opener.chowned_paths })
    }
}

struct MountOpener {
    become_user: BecomeUser,
    /// The user namespaces that map these owners to the jail's user.
    owners: HashMap<(u32, u32), OwnedFd>,
    chowned_paths: Vec<String>,
}

impl MountOpener {
    fn open(&mut self, bind: &Bind) -> SetupResult<Option<DetachedMount>> {
        let mount = match clone_mount(&bind.source, bind.links) {
            Err(Errno::NOENT | Errno::NOTDIR) if bind.missing == IfMissing::Skip => return Ok(None),
            Err(Errno::LOOP) if bind.links == SymlinkPolicy::Refuse => {
                let reason = "its path leads through a symbolic link that was not there before";
                return Err(with_reason(SetupStep::HostDirs, opening(&bind.source), reason));
            }
            other => other.map_err(setup_error(SetupStep::HostDirs, opening(&bind.source)))?,
        };
        let stat = fstat(&mount).map_err(setup_error(SetupStep::HostDirs, opening(&bind.source)))?;
        let mut set = MountAttrFlags::MOUNT_ATTR_NOSUID;
        if bind.access == Access::ReadOnly {
            set |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        set |= match bind.content {
            BindContent::Programs => MountAttrFlags::MOUNT_ATTR_NODEV,
            BindContent::Data => MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC,
            BindContent::Device => MountAttrFlags::MOUNT_ATTR_NOEXEC,
        };
        self.change(&mount, set, bind)?;
        Ok(Some(DetachedMount { mount, is_dir: FileType::from_raw_mode(stat.st_mode).is_dir() }))
    }

    fn open_output(&mut self, output: &OutputMount) -> SetupResult<OutputMounts> {
        let bind = |access| Bind {
            source: output.source.clone(),
            access,
            content: BindContent::Data,
            links: SymlinkPolicy::Refuse,
            missing: IfMissing::Fail,
            owner: output.owner,
        };
        let missing = || with_reason(SetupStep::HostDirs, opening(&output.source), "it does not exist");
        let writable = self.open(&bind(Access::ReadWrite))?.ok_or_else(missing)?;
        let readable = self.open(&bind(Access::ReadOnly))?.ok_or_else(missing)?;
        Ok(OutputMounts { writable: writable.mount, readable })
    }

    /// Sets the attributes of a mount, and maps the owner of its files.
    fn change(&mut self, mount: &OwnedFd, set: MountAttrFlags, bind: &Bind) -> SetupResult<()> {
        let failed = |errno| setup_error(SetupStep::HostDirs, format!("mount `{}`", bind.source))(errno);
        if let (OwnerMapping::Mapped { uid, gid }, BecomeUser::Dedicated(user)) =
            (bind.owner, self.become_user)
        {
            let owners = self.owners((uid, gid), user)?;
            let change = MountChange { set, owners: Some(owners) };
            match sys::change_mount(mount.as_fd(), MountDepth::Recursive, change) {
                Ok(()) => return Ok(()),
                // This file system, or one that is mounted below it, does not support ID mapping.
                Err(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(failed(errno)),
            }
            // The content of a read-only mount is readable to all, or not meant for the jail.
            if bind.access == Access::ReadWrite {
                chown_to(mount, &bind.source, uid, user)?;
                self.chowned_paths.push(bind.source.clone());
            }
        }
        sys::change_mount(mount.as_fd(), MountDepth::Recursive, MountChange { set, owners: None })
            .map_err(failed)
    }

    /// Returns a user namespace that maps the owner to the jail's user.
    fn owners(&mut self, owner: (u32, u32), user: u32) -> SetupResult<BorrowedFd<'_>> {
        let namespace: &OwnedFd = match self.owners.entry(owner) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(user_namespace(owner, user)?),
        };
        Ok(namespace.as_fd())
    }
}

fn opening(path: &str) -> String {
    format!("open `{path}` for the jail")
}

fn clone_mount(path: &str, links: SymlinkPolicy) -> Result<OwnedFd, Errno> {
    let clone =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    match links {
        SymlinkPolicy::Follow => open_tree(CWD, path, clone),
        SymlinkPolicy::Refuse => {
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let entry = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
            open_tree(entry, "", clone | OpenTreeFlags::AT_EMPTY_PATH)
        }
    }
}

/// Creates a user namespace for ID-mapped mounts. In its map, the file's owner is the inner ID, and the jail's
/// user the outer one.
fn user_namespace((uid, gid): (u32, u32), user: u32) -> SetupResult<OwnedFd> {
    let doing = || "map the owners of files".to_owned();
    let holder = sys::fork_user_namespace().map_err(setup_error(SetupStep::HostDirs, doing()))?;
    let dir = format!("/proc/{}", holder.as_raw_nonzero());
    let made = || -> Result<File, std::io::Error> {
        fs::write(format!("{dir}/uid_map"), format!("{uid} {user} 1"))?;
        fs::write(format!("{dir}/gid_map"), format!("{gid} {user} 1"))?;
        File::open(format!("{dir}/ns/user"))
    };
    let made = made();
    // The open file keeps the namespace alive.
    let _ = rustix::process::kill_process(holder, Signal::KILL);
    while let Err(Errno::INTR) = rustix::process::waitpid(Some(holder), WaitOptions::empty()) {}
    made.map(OwnedFd::from).map_err(from_io_error(SetupStep::HostDirs, doing()))
}
