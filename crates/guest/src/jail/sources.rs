//! The host's files and folders that a jail is made of, opened as mounts that hang nowhere yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use rustix::process::{Signal, WaitOptions};

use conjure_guest::protocol::{
    Access, BecomeUser, Bind, Content, JailSpec, Links, Missing, OutputFolder, Owner, PlaceKind, SetupStep,
};

use crate::sys::{self, Depth, MountChange};

use super::failure::{Done, at, because, of_io};
use super::hand_over::hand_over;

/// What the host gives to a jail.
#[derive(Debug)]
pub(super) struct Sources {
    /// For each place that is one of the host's, in order; `None` where it does not exist and need not.
    pub(super) binds: Vec<Option<Source>>,
    pub(super) output: Option<Output>,
    /// Paths whose owner could not be mapped.
    pub(super) handed_over: Vec<String>,
}

/// A file or folder of the host's as a mount.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) mount: OwnedFd,
    pub(super) is_folder: bool,
}

/// The folder of cut output, twice.
#[derive(Debug)]
pub(super) struct Output {
    /// For the guest, never mounted.
    pub(super) writable: OwnedFd,
    /// For commands.
    pub(super) readable: Source,
}

impl Sources {
    /// Opens all of them. Needs the right to mount, which is root's or that of a new user namespace.
    pub(super) fn open(spec: &JailSpec) -> Done<Self> {
        let mut opener = Opener {
            become_user: spec.identity.become_user,
            owners: HashMap::new(),
            handed_over: Vec::new(),
        };
        let mut binds = Vec::new();
        for place in &spec.places {
            if let PlaceKind::Bind(bind) = &place.is {
                binds.push(opener.open(bind)?);
            }
        }
        let output = spec.output.as_ref().map(|output| opener.open_output(output)).transpose()?;
        Ok(Self { binds, output, handed_over: opener.handed_over })
    }
}

struct Opener {
    become_user: BecomeUser,
    /// The user namespaces that map these owners to the jail's user.
    owners: HashMap<(u32, u32), OwnedFd>,
    handed_over: Vec<String>,
}

impl Opener {
    fn open(&mut self, bind: &Bind) -> Done<Option<Source>> {
        let mount = match clone_mount(&bind.source, bind.links) {
            Err(Errno::NOENT | Errno::NOTDIR) if bind.missing == Missing::LeftOut => return Ok(None),
            Err(Errno::LOOP) if bind.links == Links::Refused => {
                let reason = "its path leads through a symbolic link that was not there before";
                return Err(because(SetupStep::HostFolders, opening(&bind.source), reason));
            }
            other => other.map_err(at(SetupStep::HostFolders, opening(&bind.source)))?,
        };
        let stat = fstat(&mount).map_err(at(SetupStep::HostFolders, opening(&bind.source)))?;
        let mut set = MountAttrFlags::MOUNT_ATTR_NOSUID;
        if bind.access == Access::ReadOnly {
            set |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        set |= match bind.content {
            Content::Programs => MountAttrFlags::MOUNT_ATTR_NODEV,
            Content::Data => MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC,
            Content::Device => MountAttrFlags::MOUNT_ATTR_NOEXEC,
        };
        self.change(&mount, set, bind)?;
        Ok(Some(Source { mount, is_folder: FileType::from_raw_mode(stat.st_mode).is_dir() }))
    }

    fn open_output(&mut self, output: &OutputFolder) -> Done<Output> {
        let bind = |access| Bind {
            source: output.source.clone(),
            access,
            content: Content::Data,
            links: Links::Refused,
            missing: Missing::Refused,
            owner: output.owner,
        };
        let missing = || because(SetupStep::HostFolders, opening(&output.source), "it does not exist");
        let writable = self.open(&bind(Access::ReadWrite))?.ok_or_else(missing)?;
        let readable = self.open(&bind(Access::ReadOnly))?.ok_or_else(missing)?;
        Ok(Output { writable: writable.mount, readable })
    }

    /// Gives a mount its properties, and its files the owner that they have inside.
    fn change(&mut self, mount: &OwnedFd, set: MountAttrFlags, bind: &Bind) -> Done<()> {
        let refused = |errno| at(SetupStep::HostFolders, format!("mount `{}`", bind.source))(errno);
        if let (Owner::Mapped { uid, gid }, BecomeUser::Dedicated(user)) = (bind.owner, self.become_user) {
            let owners = self.owners((uid, gid), user)?;
            let change = MountChange { set, owners: Some(owners) };
            match sys::change_mount(mount.as_fd(), Depth::Whole, change) {
                Ok(()) => return Ok(()),
                // This file system cannot, or one that is mounted below it.
                Err(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(refused(errno)),
            }
            // What is for reading only is readable to all, or is not for the jail.
            if bind.access == Access::ReadWrite {
                hand_over(mount, &bind.source, uid, user)?;
                self.handed_over.push(bind.source.clone());
            }
        }
        sys::change_mount(mount.as_fd(), Depth::Whole, MountChange { set, owners: None }).map_err(refused)
    }

    /// A user namespace in which what is the jail's on the host is this owner's.
    fn owners(&mut self, owner: (u32, u32), user: u32) -> Done<BorrowedFd<'_>> {
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

fn clone_mount(path: &str, links: Links) -> Result<OwnedFd, Errno> {
    let clone =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    match links {
        Links::Followed => open_tree(CWD, path, clone),
        Links::Refused => {
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let place = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
            open_tree(place, "", clone | OpenTreeFlags::AT_EMPTY_PATH)
        }
    }
}

/// Makes a user namespace by which the kernel maps owners: the file's owner stands where the name inside stands, the
/// jail's user where the host's stands.
fn user_namespace((uid, gid): (u32, u32), user: u32) -> Done<OwnedFd> {
    let doing = || "map the owners of files".to_owned();
    let holder = sys::fork_user_namespace().map_err(at(SetupStep::HostFolders, doing()))?;
    let folder = format!("/proc/{}", holder.as_raw_nonzero());
    let made = || -> Result<File, std::io::Error> {
        fs::write(format!("{folder}/uid_map"), format!("{uid} {user} 1"))?;
        fs::write(format!("{folder}/gid_map"), format!("{gid} {user} 1"))?;
        File::open(format!("{folder}/ns/user"))
    };
    let made = made();
    // The open file keeps the namespace.
    let _ = rustix::process::kill_process(holder, Signal::KILL);
    while let Err(Errno::INTR) = rustix::process::waitpid(Some(holder), WaitOptions::empty()) {}
    made.map(OwnedFd::from).map_err(of_io(SetupStep::HostFolders, doing()))
}
