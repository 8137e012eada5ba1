//! The execution context of the specification (4.5, 9.4): what a sandbox is made for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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

/// What a sandbox is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionContext {
    /// The session's private folder: commands run in it, and it is writable. Must exist.
    pub workspace: PathBuf,
    /// Folders that may be read besides: the roots of the session's skills.
    pub read_only: Vec<PathBuf>,
    /// Further folders that may be read and written. An empty list allows nothing.
    pub allowed_paths: Vec<PathBuf>,
    /// Variables that commands see, on top of a small safe set.
    pub environment: BTreeMap<String, String>,
    /// How long one call may take, unless it says otherwise.
    pub timeout: Duration,
    /// What it may reach of the network.
    pub network: NetworkPolicy,
}

impl ExecutionContext {
    /// A context for this workspace with the specification's defaults: no further folders, an empty environment,
    /// 30 seconds, no network.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            read_only: Vec::new(),
            allowed_paths: Vec::new(),
            environment: BTreeMap::new(),
            timeout: Duration::from_secs(30),
            network: NetworkPolicy::None,
        }
    }
}
