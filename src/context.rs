//! The execution context of a session (specification 4.5, 9.4): its private folder, and what its tools may reach.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_base::{Redactor, looks_sensitive};
use conjure_sandbox::{DataFolder, ExecutionContext, SharedFolder, Shelf};
use conjure_skill::Skill;

use crate::config::Config;
use crate::error::Error;
use crate::workspace::{Workspace, temporary_data};

/// What a session has of its own, beside the configuration.
#[derive(Clone, Default)]
pub struct ContextOptions {
    /// The folder to work in; `None`: a new temporary one, private to the session.
    pub workspace: Option<PathBuf>,
    /// Variables that commands see. Values whose names look like secrets' are redacted wherever they would leave.
    pub environment: BTreeMap<String, String>,
    /// Values of the host's own that commands do not see, by name. Should they get hold of one, it is redacted
    /// wherever it would leave.
    pub secrets: BTreeMap<String, String>,
    /// Folders that tools may read and write beside the workspace and those of the configuration.
    pub allowed_paths: Vec<PathBuf>,
    /// Where its private folders and the snapshots of its skills lie; `None`: in the configuration's data folder, else in
    /// a temporary one. All sessions of a tenant may have the same, and open it once.
    pub data: Option<DataFolder>,
}

impl ContextOptions {
    /// Keeps the secrets, and the values of sensitive variables, out of what leaves.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        redactor(self)
    }
}

/// Names only: a value may be a secret.
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

/// A session's folder, and what a sandbox for it is made of. A temporary folder goes when this is dropped.
pub struct SessionContext {
    execution: ExecutionContext,
    workspace: Workspace,
    /// The skills of packages: their folders are there as long as they are.
    _unpacked: Vec<Skill>,
    redactor: Redactor,
    data: DataFolder,
}

/// Makes the context for a session with these skills: their folders may be read, the workspace and the allowed
/// paths written, and nothing else is reachable by the file tools.
///
/// ```
/// use conjure::{Config, ContextOptions, create_context};
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
/// When the workspace cannot be made or entered, the data folder cannot be used, an allowed path is not there, or two
/// skills have one name.
pub fn create_context<S: Borrow<Skill>>(
    skills: &[S],
    config: &Config,
    options: ContextOptions,
) -> Result<SessionContext, Error> {
    let existing = options.workspace.as_deref().map(Workspace::existing).transpose()?;
    let data = match (options.data.clone(), config.data()) {
        (Some(data), _) => data,
        (None, Some(path)) => DataFolder::open(path)
            .map_err(|error| Error::PermissionDenied { path: path.to_owned(), reason: error.to_string() })?,
        (None, None) => temporary_data()?,
    };
    let workspace = existing.map_or_else(|| Workspace::private(&data), Ok)?;
    let mut allowed_paths = Vec::new();
    for path in config.allowed_paths().iter().chain(&options.allowed_paths) {
        let resolved = path.canonicalize().map_err(|error| Error::io_of("the allowed path", path, &error))?;
        if !allowed_paths.contains(&resolved) {
            allowed_paths.push(resolved);
        }
    }
    let redactor = redactor(&options);
    let execution = ExecutionContext {
        read_only: shared(skills)?,
        allowed_paths,
        environment: options.environment,
        timeout: config.tool_timeout(),
        network: config.network().clone(),
        limits: *config.limits(),
        floor: *config.floor(),
        ..ExecutionContext::new(workspace.path())
    };
    // What was unpacked goes with its last user. A sandbox is one and knows only paths, so this context, which must
    // outlive it, stands in for it.
    let unpacked =
        skills.iter().map(Borrow::borrow).filter(|skill| skill.package().is_some()).cloned().collect();
    Ok(SessionContext { execution, workspace, _unpacked: unpacked, redactor, data })
}

/// What the folders of a session belong to: they are there for as long as this is.
#[derive(Debug)]
pub(crate) struct SessionFolders {
    _workspace: Workspace,
    _unpacked: Vec<Skill>,
    _data: DataFolder,
}

impl SessionContext {
    /// The folders alone, for whoever knows what a sandbox is made of.
    pub(crate) fn into_folders(self) -> SessionFolders {
        let Self { workspace, _unpacked, data, .. } = self;
        SessionFolders { _workspace: workspace, _unpacked, _data: data }
    }

    /// What a sandbox for the session is made of.
    ///
    /// It names folders and holds none: a temporary workspace, and the private folders that the skills of packages were
    /// unpacked into, may go with this context. A clone of it, or a sandbox that was made of it, is of use for as long
    /// as this lives.
    #[must_use]
    pub const fn execution(&self) -> &ExecutionContext {
        &self.execution
    }

    /// The session's folder.
    #[must_use]
    pub const fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The session's folder, to keep it.
    pub const fn workspace_mut(&mut self) -> &mut Workspace {
        &mut self.workspace
    }

    /// Where its private folders and the snapshots of its skills lie.
    #[must_use]
    pub const fn data(&self) -> &DataFolder {
        &self.data
    }

    /// Keeps the session's secrets and the values of its sensitive variables out of what leaves.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }
}

/// The skills' folders, each by its name. A skill that was given twice is there once.
fn shared<S: Borrow<Skill>>(skills: &[S]) -> Result<Vec<SharedFolder>, Error> {
    let mut folders: Vec<SharedFolder> = Vec::with_capacity(skills.len());
    let mut hosts: BTreeMap<&str, &Path> = BTreeMap::new();
    for skill in skills.iter().map(Borrow::borrow) {
        let (name, host) = (skill.name().as_str(), skill.root_dir());
        match hosts.insert(name, host) {
            None => folders.push(SharedFolder::new(host, Path::new(Shelf::Skills.path()).join(name))),
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
    Ok(folders)
}

/// Keeps the secrets of these options, and the values of their sensitive variables, out of what leaves.
fn redactor(options: &ContextOptions) -> Redactor {
    redactor_with(options, &BTreeMap::new())
}

/// The same with further secrets. One of them may have the name of another of a session's: both are kept in.
pub(crate) fn redactor_with(options: &ContextOptions, further: &BTreeMap<String, String>) -> Redactor {
    let sensitive = options.environment.iter().filter(|(name, value)| looks_sensitive(name, value));
    Redactor::new(sensitive.chain(&options.secrets).chain(further).flat_map(|(name, value)| {
        // Also in the form that it has inside JSON.
        let quoted = serde_json::Value::from(value.as_str()).to_string();
        let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned();
        [(name.clone(), value.clone()), (name.clone(), inner)]
    }))
}

/// The environment is left out: a value may be a secret.
impl std::fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionContext")
            .field("workspace", &self.workspace)
            .field("read_only", &self.execution.read_only)
            .field("allowed_paths", &self.execution.allowed_paths)
            .finish_non_exhaustive()
    }
}
