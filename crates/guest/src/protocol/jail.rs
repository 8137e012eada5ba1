//! What a jail is made of, as the host says it, and what became of it, as the guest says.
//!
//! The host decides everything (what is mounted, as whom commands run); the guest carries it out, whole or not at
//! all. Nothing here is kept: a jail exists as long as the guest in it.

use serde::{Deserialize, Serialize};

use super::Access;

/// A jail. The guest was started as `conjure-guest jail`, sets it up, and lives in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailSpec {
    /// As whom everything in it runs.
    pub identity: Identity,
    /// The name of the machine, as commands see it.
    pub hostname: String,
    /// What lies in it, made in this order in an empty root, which is read-only in the end. Missing folders above
    /// a place are made.
    pub places: Vec<Place>,
    /// Where output that was cut is kept, for [`crate::protocol::Hello::spill_dir`].
    pub output: Option<OutputFolder>,
    /// Folders of control groups (`/sys/fs/cgroup/…`) that everything in it joins; made by the host.
    pub cgroups: Vec<String>,
}

/// As whom everything in a jail runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Whether the guest becomes somebody else before it makes the jail.
    pub become_user: BecomeUser,
    /// The user's number inside, the only one that there is.
    pub uid: u32,
    /// The group's number inside, the only one that there is.
    pub gid: u32,
}

/// Whether the guest becomes somebody else before it makes the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BecomeUser {
    /// It stays the host's user.
    Stay,
    /// It was started by root, and becomes this user and group of the host's for ever, without other groups.
    Dedicated(u32),
}

/// A file, folder or mount in a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where, inside. Absolute, without `.` and `..`.
    pub path: String,
    /// What.
    pub is: PlaceKind,
}

/// What lies at a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// A folder.
    Folder {
        /// Its permission bits.
        mode: u32,
    },
    /// A file with this content.
    File {
        /// Its permission bits.
        mode: u32,
        /// Its text.
        content: String,
    },
    /// A symbolic link.
    Link {
        /// What it leads to.
        target: String,
    },
    /// A file or folder of the host's, with what is mounted below it.
    Bind(Bind),
    /// A file system in memory, owned by the jail's user.
    Tmpfs {
        /// The most bytes in it.
        bytes: u64,
        /// The most files and folders in it.
        inodes: u64,
        /// The permission bits of its root.
        mode: u32,
        /// Read-only ones can hold other places: they become so when all is in place.
        access: Access,
    },
    /// A folder of a place made before, a second time: so that several places share the size of one.
    Again {
        /// Where it lies already.
        path: String,
    },
    /// The processes of the jail.
    Proc,
    /// Terminals of the jail's own, for `/dev/pts`.
    Terminals,
    /// Nothing to be seen: an empty file or folder lies over what is there. Where nothing is, nothing is done.
    Hidden,
    /// What is there, for reading only. Where nothing is, nothing is done.
    Fixed,
}

/// A file or folder of the host's in a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Its absolute path on the host.
    pub source: String,
    /// Whether it may be changed.
    pub access: Access,
    /// What may be done with it besides.
    pub content: Content,
    /// Whether its path may lead through symbolic links.
    pub links: Links,
    /// What happens when it does not exist.
    pub missing: Missing,
    /// Whose the files in it are, as seen inside.
    pub owner: Owner,
}

/// What a bound file or folder holds. Programs that change the user (set-user-ID) never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Files and programs that may be run; devices are of no use.
    Programs,
    /// Files; programs cannot be run from it, and devices are of no use.
    Data,
    /// A device, which may be opened.
    Device,
}

/// Whether a path may lead through symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// It may, as those of the machine itself do.
    Followed,
    /// It may not: the host has resolved it, and what is a link now was put there since.
    Refused,
}

/// What happens when a file or folder of the host's does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// There is no jail.
    Refused,
    /// It is left out.
    LeftOut,
}

/// Whose the files of a bound folder are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Whose they are on the host.
    Kept,
    /// What this user and group of the host's own is the jail's own inside, and what the jail makes is theirs on
    /// the host. Only where the guest is started by root. Where the file system cannot do that, what they own in a
    /// folder that may be changed is handed over to the jail's user, and the guest's greeting says so.
    Mapped {
        /// The user's number on the host.
        uid: u32,
        /// The group's number on the host.
        gid: u32,
    },
}

/// Where output that was cut is kept: commands see it for reading only, the guest writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFolder {
    /// Its absolute path on the host, without symbolic links.
    pub source: String,
    /// Where it is seen inside.
    pub path: String,
    /// Whose the files in it are on the host.
    pub owner: Owner,
}

/// What a guest that was started as `conjure-guest own` does: it reads this as JSON from its standard input, up to the
/// end, does it, and ends. The host asks for it when a sandbox is over whose files were handed over; and, where somebody
/// else makes the sandbox, to hand them over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeBack {
    /// The folder on the host, without symbolic links.
    pub folder: String,
    /// The jail's user, whose files in it are meant, and the folder itself.
    pub from: u32,
    /// To which user they go.
    pub uid: u32,
    /// And to which group.
    pub gid: u32,
    /// Which of them.
    #[serde(default)]
    pub which: WhichFiles,
}

/// Which files of an owner are given to another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhichFiles {
    /// All.
    #[default]
    All,
    /// Those that have no other name: it may lie elsewhere.
    OfOneName,
}

/// What a guest that is confined made of it: part of its greeting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Host paths whose owner could not be mapped ([`Owner::Mapped`]): what it owned there is now the jail user's,
    /// and the host must take it back in the end.
    pub handed_over: Vec<String>,
}

/// Why a guest could not confine itself. It comes in place of the greeting, as a `Done` frame of channel 0, and the
/// guest ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("cannot {doing}: {reason}")]
pub struct SetupFailure {
    /// How far it came.
    pub step: SetupStep,
    /// The number that the system gave (`errno`), or 0 when it was not the system that refused.
    pub errno: i32,
    /// What could not be done, and to what.
    pub doing: String,
    /// What was wrong, in words.
    pub reason: String,
}

/// The steps of setting up a jail, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SetupStep {
    /// The specification makes no sense.
    Specification,
    /// Joining the control groups.
    ControlGroups,
    /// Opening and mapping the host's folders.
    HostFolders,
    /// Becoming the dedicated user.
    Identity,
    /// Making the namespaces.
    Namespaces,
    /// Saying who the user is inside.
    UserMap,
    /// Starting the first process inside.
    Process,
    /// Building the new root.
    Root,
    /// Mounting `/proc`.
    Proc,
    /// Changing to the new root, and leaving the old one.
    Pivot,
    /// Switching the loopback interface on.
    Loopback,
    /// Giving up all privileges.
    Privileges,
    /// Closing the fortress around what runs commands.
    Rules,
}
