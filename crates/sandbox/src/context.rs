//! The execution context of the specification (4.5, 9.4): what a sandbox is made for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::isolation::Isolation;
use crate::limits::Limits;

/// What a sandbox may reach of the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkPolicy {
    /// Nothing.
    #[default]
    None,
    /// The named hosts.
    Limited(Vec<String>),
    /// Any public address.
    Full,
}

/// A folder of the host that a sandbox may read, and where the sandbox has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedFolder {
    /// The folder on the host.
    pub host: PathBuf,
    /// Its absolute path in the sandbox, such as `/mnt/skills/pdf`, without `.` or `..` in it. A sandbox that has no
    /// file system of its own (`local`) does not use it: there the folder is where the host has it.
    pub target: PathBuf,
}

impl SharedFolder {
    /// The folder at `host`, to be found at `target`.
    pub fn new(host: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self { host: host.into(), target: target.into() }
    }
}

/// What a sandbox is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionContext {
    /// The session's private folder: commands run in it, and it is writable. Must exist.
    pub workspace: PathBuf,
    /// Folders that may be read besides: the roots of the session's skills. No two may have one target.
    pub read_only: Vec<SharedFolder>,
    /// Further folders that may be read and written. An empty list allows nothing.
    pub allowed_paths: Vec<PathBuf>,
    /// Variables that commands see, on top of a small safe set.
    pub environment: BTreeMap<String, String>,
    /// How long one call may take, unless it says otherwise.
    pub timeout: Duration,
    /// What it may reach of the network.
    pub network: NetworkPolicy,
    /// What it may use.
    pub limits: Limits,
    /// What must be enforced: a sandbox that cannot is not made. It cannot be lowered by a session where the host
    /// lays its own floor over it.
    pub floor: Isolation,
}

impl ExecutionContext {
    /// A context for this workspace with the specification's defaults: no further folders, an empty environment,
    /// 30 seconds, no network, half a gigabyte of memory and one processor. Nothing is demanded.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            read_only: Vec::new(),
            allowed_paths: Vec::new(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(30),
            network: NetworkPolicy::None,
            limits: Limits::default(),
            floor: Isolation::NONE,
        }
    }
}
