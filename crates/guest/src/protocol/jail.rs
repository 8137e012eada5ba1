//! The specification of a jail, and the result of its set-up.
//!
//! The host decides everything, such as the mounts and the user. The guest carries it out completely or not at
//! all. A jail exists as long as the guest in it.

use serde::{Deserialize, Serialize};

use super::files::Access;

/// A jail. A guest that was started as `conjure-guest jail` sets it up and runs in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailSpec {
    /// The user of all processes in the jail.
    pub identity: Identity,
    /// The host name that commands see.
    pub hostname: String,
    /// The contents of the root file system, created in this order. Missing parent directories are created. The root
    /// becomes read-only at the end.
    pub mounts: Vec<MountEntry>,
    /// The directory for spill files; see [`crate::protocol::Hello::spill_dir`].
    pub output: Option<OutputMount>,
    /// The cgroup directories (`/sys/fs/cgroup/…`) that all processes join. The host creates them.
    pub cgroups: Vec<String>,
}

/// The user of all processes in a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Whether the guest changes its user before the set-up.
    pub become_user: BecomeUser,
    /// The only user id inside.
    pub uid: u32,
    /// The only group id inside.
    pub gid: u32,
}

/// Whether the guest changes its user before the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BecomeUser {
    /// It keeps the host's user.
    Stay,
    /// It was started by root, and changes to this user and group of the host for good, without other groups.
    Dedicated(u32),
}

/// A file, directory or mount in a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountEntry {
    /// The path inside. Absolute, without `.` and `..`.
    pub path: String,
    /// The kind of entry.
    pub kind: MountKind,
}

/// The kind of an entry in a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// A directory.
    Dir {
        /// The permission bits.
        mode: u32,
    },
    /// A file with this content.
    File {
        /// The permission bits.
        mode: u32,
        /// The content.
        content: String,
    },
    /// A symbolic link.
    Link {
        /// The target.
        target: String,
    },
    /// A file or directory of the host, with the mounts below it.
    Bind(Bind),
    /// An in-memory file system that belongs to the jail's user.
    Tmpfs {
        /// The maximum size in bytes.
        bytes: u64,
        /// The maximum number of files and directories.
        inodes: u64,
        /// The permission bits of its root directory.
        mode: u32,
        /// A read-only one can contain other entries. It becomes read-only at the end.
        access: Access,
    },
    /// A directory of an earlier entry, mounted a second time. So several entries share one size limit.
    SubdirBind {
        /// The path of the earlier directory inside.
        path: String,
    },
    /// The `/proc` file system of the jail.
    Proc,
    /// The jail's own pseudo-terminals, for `/dev/pts`.
    DevPts,
    /// An empty file or directory over an existing entry, which hides it. If there is none, nothing is done.
    Masked,
    /// An existing entry, made read-only. If there is none, nothing is done.
    ReadOnlyOverlay,
}

/// A file or directory of the host in a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Its absolute path on the host.
    pub source: String,
    /// Whether it is writable inside.
    pub access: Access,
    /// How its content may be used.
    pub content: BindContent,
    /// Whether the source path may contain symbolic links.
    pub links: SymlinkPolicy,
    /// What to do when the source does not exist.
    pub missing: IfMissing,
    /// The owner of its files, as seen inside.
    pub owner: OwnerMapping,
}

/// How the content of a bind mount may be used. Set-user-ID bits never have an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindContent {
    /// Files and programs. Devices cannot be used.
    Programs,
    /// Files only: no programs, no devices.
    Data,
    /// A device that can be opened.
    Device,
}

/// Whether a path may contain symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymlinkPolicy {
    /// Follow links, as for paths of the machine itself.
    Follow,
    /// Refuse links: the host resolved the path already, so a link appeared since.
    Refuse,
}

/// What to do when a file or directory of the host does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfMissing {
    /// The set-up fails.
    Fail,
    /// The entry is left out.
    Skip,
}

/// The owner of files in a bind mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerMapping {
    /// The same as on the host.
    Unchanged,
    /// Inside, files of this user and group of the host belong to the jail's user. Files that the jail creates belong
    /// to this user and group on the host. Needs a guest that was started by root. Where the file system supports no
    /// ID mapping, the guest changes the owner of files in writable directories, and reports this in the handshake.
    Mapped {
        /// The user id on the host.
        uid: u32,
        /// The group id on the host.
        gid: u32,
    },
}

/// The directory for spill files. It is read-only for commands; the guest writes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputMount {
    /// Its absolute path on the host, without symbolic links.
    pub source: String,
    /// The path inside.
    pub path: String,
    /// The owner of its files on the host.
    pub owner: OwnerMapping,
}

/// The request to a guest that was started as `conjure-guest own`. It reads this as JSON from standard input up to
/// the end, changes the owner of files, and exits. The host sends it after a sandbox with changed owners has
/// ended. When another process creates the sandbox, the host also sends it before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChownRequest {
    /// The directory on the host. Its path contains no symbolic links.
    pub dir: String,
    /// The user whose files change their owner. The directory itself is included.
    pub from: u32,
    /// The new user.
    pub uid: u32,
    /// The new group.
    pub gid: u32,
    /// Which of the files.
    #[serde(default, rename = "which")]
    pub selection: FileSelection,
}

/// Which files of a user change their owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSelection {
    /// All.
    #[default]
    All,
    /// Files with only one name. Another name could be outside the directory.
    SingleLink,
}

/// The result of a jail's set-up, for the handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Host paths whose owner could not be mapped ([`OwnerMapping::Mapped`]). The files there belong to the jail's
    /// user now, and the host must change the owner back at the end.
    pub chowned_paths: Vec<String>,
}

/// Why a jail could not be set up. It replaces [`super::Welcome`] as a `Done` frame of channel 0, and the guest
/// exits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("cannot {doing}: {reason}")]
pub struct SetupError {
    /// The step that failed.
    pub step: SetupStep,
    /// The system's error number (`errno`). 0 when the system did not report the error.
    pub errno: i32,
    /// The action that failed, and its object.
    pub doing: String,
    /// The reason, as text.
    pub reason: String,
}

/// The steps of setting up a jail, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SetupStep {
    /// Checking the specification.
    Specification,
    /// Joining the cgroups.
    ControlGroups,
    /// Opening and mapping the host's directories.
    HostDirs,
    /// Changing to the dedicated user.
    Identity,
    /// Creating the namespaces.
    Namespaces,
    /// Writing the user map.
    UserMap,
    /// Starting process 1 of the jail.
    Process,
    /// Building the root file system.
    Root,
    /// Mounting `/proc`.
    Proc,
    /// Changing to the new root, and unmounting the old one.
    Pivot,
    /// Enabling the loopback interface.
    Loopback,
    /// Dropping all privileges.
    Privileges,
    /// Applying the rules for commands.
    Rules,
}
