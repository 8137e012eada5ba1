//! The execution context of a session (specification 4.5, 9.4): its private directory, and what its tools may reach.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_base::{Redactor, is_sensitive_variable};
#[cfg(feature = "mcp")]
use conjure_sandbox::SandboxNetwork;
use conjure_sandbox::{
    Boundary, ContentDir, DataDir, ExecutionContext, NetworkPolicy, SandboxError, SharedDir, WorkspaceMount,
};
use conjure_skill::Skill;

use crate::config::Config;
use crate::error::Error;
use crate::workspace::{SessionWorkspace, temporary_data};

/// The options of a session's context, in addition to the configuration.
#[derive(Clone, Default)]
pub struct ContextOptions {
    /// The directory to work in. `None` creates a temporary directory that is private to the session.
    pub workspace: Option<PathBuf>,
    /// Variables that commands see. A value is redacted wherever it would leave if its name looks like that of a secret.
    pub environment: BTreeMap<String, String>,
    /// Secrets of the embedder by name, which commands do not see. They are redacted wherever they would leave.
    pub secrets: BTreeMap<String, String>,
    /// Directories that tools may read and write, in addition to the workspace and those of the configuration.
    pub allowed_paths: Vec<PathBuf>,
    /// The data directory for the session's private directories and the snapshots of its skills. `None` uses the
    /// configured one, or a temporary one. All sessions of a tenant can share one.
    pub data: Option<DataDir>,
}

impl ContextOptions {
    /// The redactor for the secrets and the sensitive variables.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        redactor(self)
    }
}

/// Shows names only, because a value may be a secret.
impl std::fmt::Debug for ContextOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContextOptions")
            .field("workspace", &self.workspace)
            .field("environment", &self.environment.keys())
            .field("secrets", &self.secrets.keys())
            .field("allowed_paths", &self.allowed_paths)
            .field("data", &self.data)
            .finish()
    }
}

/// A session's directory, and the execution context of its sandbox. A temporary directory is removed when this is dropped.
pub struct SessionContext {
    execution: ExecutionContext,
    workspace: SessionWorkspace,
    /// The skills that were unpacked from packages. Dropping them removes their directories.
    _unpacked: Vec<Skill>,
    redactor: Redactor,
    data: DataDir,
}

/// Creates the context of a session with these skills. The file tools can read the skills' directories, write to the
/// workspace and the allowed paths, and reach nothing else.
///
/// ```
/// use conjure::Config;
/// use conjure::session::{ContextOptions, create_context};
///
/// let skills: [conjure::Skill; 0] = [];
/// let context = create_context(&skills, &Config::default(), ContextOptions::default())?;
/// assert!(context.workspace().is_temporary());
/// assert_eq!(context.execution().timeout, std::time::Duration::from_secs(30));
/// assert!(context.execution().allowed_paths.is_empty());
/// # Ok::<(), conjure::Error>(())
/// ```
///
/// # Errors
/// If the workspace cannot be created or entered. If the data directory cannot be used. If an allowed path does not exist.
/// If two skills have the same name.
pub fn create_context<S: Borrow<Skill>>(
    skills: &[S],
    config: &Config,
    options: ContextOptions,
) -> Result<SessionContext, Error> {
    let existing = options.workspace.as_deref().map(SessionWorkspace::existing).transpose()?;
    let data = match (options.data.clone(), config.data()) {
        (Some(data), _) => data,
        (None, Some(path)) => DataDir::open(path)
            .map_err(|error| Error::PermissionDenied { path: path.to_owned(), reason: error.to_string() })?,
        (None, None) => temporary_data()?,
    };
    let workspace = existing.map_or_else(|| SessionWorkspace::private(&data), Ok)?;
    let mut allowed_paths = Vec::new();
    for path in config.allowed_paths().iter().chain(&options.allowed_paths) {
        let resolved = path.canonicalize().map_err(|error| Error::io_of("the allowed path", path, &error))?;
        if !allowed_paths.contains(&resolved) {
            allowed_paths.push(resolved);
        }
    }
    let redactor = redactor(&options);
    let execution = ExecutionContext {
        read_only: shared_dirs(skills)?,
        allowed_paths,
        environment: options.environment,
        timeout: config.tool_timeout(),
        network: config.network().clone(),
        limits: *config.limits(),
        floor: *config.floor(),
        ..ExecutionContext::new(workspace.path())
    };
    // The directory of an unpacked skill is removed with its last owner. A sandbox uses it but knows only its path. So
    // this context owns the skill, and must outlive the sandbox.
    let unpacked =
        skills.iter().map(Borrow::borrow).filter(|skill| skill.package().is_some()).cloned().collect();
    Ok(SessionContext { execution, workspace, _unpacked: unpacked, redactor, data })
}

/// Keeps the directories of a session alive.
#[derive(Debug)]
pub(crate) struct SessionDirsGuard {
    _workspace: SessionWorkspace,
    _unpacked: Vec<Skill>,
    _data: DataDir,
}

impl SessionContext {
    /// The same context with additional second paths for directories of the workspace.
    pub(crate) fn with_workspace_mounts(mut self, mounts: impl IntoIterator<Item = WorkspaceMount>) -> Self {
        self.execution.workspace_mounts.extend(mounts);
        self
    }

    /// The same context for a sandbox that reaches only these hosts. The sandbox must be able to enforce that.
    pub(crate) fn with_allowed_hosts(mut self, hosts: &[String]) -> Result<Self, SandboxError> {
        let limit = NetworkPolicy::Limited(hosts.to_vec());
        self.execution.network = self.execution.network.restricted_to(&limit)?;
        self.execution.floor.network = Boundary::Enforced;
        Ok(self)
    }

    /// The same context with additional read-only directories, each with the path that it has in the sandbox.
    pub(crate) fn with_read_only(mut self, dirs: impl IntoIterator<Item = SharedDir>) -> Self {
        self.execution.read_only.extend(dirs);
        self
    }

    /// The same context with this handle for the network of its sandbox.
    #[cfg(feature = "mcp")]
    pub(crate) fn with_sandbox_network(mut self, network: SandboxNetwork) -> Self {
        self.execution.sandbox_network = Some(network);
        self
    }

    /// The same context, in which the program may reach these additional hosts while it starts.
    #[cfg(feature = "mcp")]
    pub(crate) fn with_startup_hosts(mut self, hosts: &[&str]) -> Self {
        let hosts = hosts.iter().copied().map(str::to_owned).collect();
        self.execution.startup_network = NetworkPolicy::Limited(hosts);
        self
    }

    /// The guard that keeps the directories, without the rest of the context.
    pub(crate) fn into_dirs_guard(self) -> SessionDirsGuard {
        let Self { workspace, _unpacked, data, .. } = self;
        SessionDirsGuard { _workspace: workspace, _unpacked, _data: data }
    }

    /// The execution context of the session's sandbox.
    ///
    /// It contains paths, but does not keep the directories alive. Dropping this context removes a temporary workspace
    /// and the directories of unpacked packages. So use a clone of it, or a sandbox made with it, only while this context
    /// exists.
    #[must_use]
    pub const fn execution(&self) -> &ExecutionContext {
        &self.execution
    }

    /// The session's directory.
    #[must_use]
    pub const fn workspace(&self) -> &SessionWorkspace {
        &self.workspace
    }

    /// The data directory of the session's private directories and the snapshots of its skills.
    #[must_use]
    pub const fn data(&self) -> &DataDir {
        &self.data
    }

    /// The redactor for the session's secrets and sensitive variables.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }
}

/// The skills' directories, each under its skill's name. A skill that is given twice appears once.
fn shared_dirs<S: Borrow<Skill>>(skills: &[S]) -> Result<Vec<SharedDir>, Error> {
    let mut dirs: Vec<SharedDir> = Vec::with_capacity(skills.len());
    let mut hosts: BTreeMap<&str, &Path> = BTreeMap::new();
    for skill in skills.iter().map(Borrow::borrow) {
        let (name, host) = (skill.name().as_str(), skill.root_dir());
        match hosts.insert(name, host) {
            None => dirs.push(SharedDir::new(host, Path::new(ContentDir::Skills.path()).join(name))),
            Some(first) if first == host => {}
            Some(first) => {
                let (first, second) = (first.display(), host.display());
                return Err(Error::InvalidSkillStructure {
                    path: host.to_owned(),
                    reason: format!(
                        "`{first}` and `{second}` both are the skill `{name}`, and a session has one of a name; \
                         rename or leave out one of them"
                    ),
                    source: None,
                });
            }
        }
    }
    Ok(dirs)
}

/// The redactor for the secrets of these options, and for their sensitive variables.
fn redactor(options: &ContextOptions) -> Redactor {
    redactor_with(options, &BTreeMap::new())
}

/// A redactor with additional secrets. If two secrets have the same name, both are redacted.
pub(crate) fn redactor_with(options: &ContextOptions, further: &BTreeMap<String, String>) -> Redactor {
    let sensitive = options.environment.iter().filter(|(name, value)| is_sensitive_variable(name, value));
    Redactor::new(sensitive.chain(&options.secrets).chain(further))
}

/// Leaves out the environment, because a value may be a secret.
impl std::fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionContext")
            .field("workspace", &self.workspace)
            .field("read_only", &self.execution.read_only)
            .field("allowed_paths", &self.execution.allowed_paths)
            .finish_non_exhaustive()
    }
}
