//! The first frames: [`Hello`] from the host, [`Welcome`] from the guest.
//!
//! A guest that was started as `conjure-guest connect PATH` first connects to the Unix socket at that path. It uses
//! the socket instead of its standard streams. Some runtimes and security modules forbid the connection. The guest
//! then writes [`CONNECT_FAILED`] to its standard output and uses the standard streams. So the host knows which
//! stream to use before it sends anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::files::Access;
use super::jail::{Confinement, JailSpec};
use super::quota::Quota;
use super::rules::{CommandRules, EnforcedRules};
use super::tunnel::ProxySpec;

/// The version of the protocol. Host and guest are built together, so there is no negotiation. A different version
/// means a guest from another build, which is an error.
pub const PROTOCOL_VERSION: u32 = 6;

/// The default for [`Hello::spill_total`], in bytes.
pub const SPILL_TOTAL: u64 = 1024 * 1024 * 1024;

/// The first frame of the host: the configuration of the sandbox. The default has only the version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The directories that file operations may access; all others are refused. Absolute paths. The longest root that
    /// contains a path applies.
    pub roots: Vec<Root>,
    /// The working directory of commands, and the base of relative paths. Absolute, beneath a root.
    pub workdir: String,
    /// The complete environment of commands. They inherit nothing.
    pub env: BTreeMap<String, String>,
    /// The directory for spill files, which hold the complete output when it was cut. `None`: no spill files.
    /// Absolute; should be beneath a root.
    pub spill_dir: Option<String>,
    /// The maximum total size of spill files in bytes. At this size, no more output is spilled until files are
    /// removed. `None`: [`SPILL_TOTAL`].
    #[serde(default)]
    pub spill_total: Option<u64>,
    /// The directory that holds the content directories, when content is installed through the guest
    /// ([`super::Request::Install`]). Only the guest writes there. Absolute. `None`: there is none.
    #[serde(default, rename = "shelves")]
    pub content_root: Option<String>,
    /// The proxy for the connections of commands. `None`: no proxy.
    #[serde(default)]
    pub proxy: Option<ProxySpec>,
    /// The restrictions of commands.
    #[serde(default)]
    pub rules: CommandRules,
    /// The disk quota of the working directory or another root. `None`: unlimited.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// The jail to set up first, for a guest that was started as `conjure-guest jail`. All paths above are paths
    /// in the jail. `None` for any other guest.
    #[serde(default)]
    pub jail: Option<JailSpec>,
}

impl Default for Hello {
    fn default() -> Self {
        Self {
            version: PROTOCOL_VERSION,
            roots: Vec::new(),
            workdir: "/".to_owned(),
            env: BTreeMap::new(),
            spill_dir: None,
            spill_total: None,
            content_root: None,
            proxy: None,
            rules: CommandRules::default(),
            quota: None,
            jail: None,
        }
    }
}

/// A directory that file operations may access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Its absolute path, as commands and the model name it.
    pub path: String,
    /// Whether files in it may be changed.
    pub access: Access,
}

/// The first frame of the guest: it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`] of the guest.
    pub version: u32,
    /// The guest's process id in its own pid namespace.
    pub pid: u32,
    /// The guest's confinement. `None` when it is not confined.
    pub confinement: Option<Confinement>,
    /// Which of the requested rules are enforced.
    #[serde(default)]
    pub rules: EnforcedRules,
    /// The identities of the roots.
    #[serde(default)]
    pub roots: OpenedRoots,
}

/// The identities of the roots, as the guest opened them. A container mounts a directory by its path, and another
/// directory may have been there by then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedRoots {
    /// The boot id of the guest's kernel. Inode numbers are comparable only under the same kernel. `None`:
    /// unknown.
    pub boot: Option<String>,
    /// The roots in the order of [`Hello::roots`]. `None`: it does not exist, or is no directory.
    pub dirs: Vec<Option<DirId>>,
}

/// The identity of a directory on one machine, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirId {
    /// The device number of the file system.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// The first argument of a guest that is to connect to a socket. The second argument is the socket's path.
pub const CONNECT_ARG: &str = "connect";

/// The byte that a guest writes to its standard output, before any frame, when it could not connect.
pub const CONNECT_FAILED: u8 = 0xff;
