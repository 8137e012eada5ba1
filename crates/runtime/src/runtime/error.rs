//! The errors of a runtime.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_actors::artifacts::SharedArtifactError;
use conjure_actors::catalogs::RegistryError;
use conjure_actors::session::SessionError;
use conjure_actors::supervision::ShutdownError;
use conjure_actors::tenants::QuotaExceeded;
use conjure_base::{Digest, SessionId, TenantId};
use conjure_conversation::{ForkError, SecretNames};
use conjure_journal::JournalError;
use conjure_sandbox::SandboxError;
use conjure_toolbox::ToolboxError;

use crate::error::Error;
use crate::runtime::session::input::input_error::InputError;

/// An error of a [`Runtime`](crate::Runtime). The message says what failed, where, and why. [`RuntimeError::hint`]
/// says how to mend it, if the message does not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// The id.
        session: SessionId,
    },
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The tenant has reached a quota.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// The tenant has a disk quota, and its usage cannot be measured.
    #[error(
        "the tenant `{tenant}` cannot use more disk space, because its data directory cannot be measured: {reason}; delete sessions, or \
         files of their workspaces, or lift its disk quotas"
    )]
    UsageUnknown {
        /// The tenant.
        tenant: TenantId,
        /// The reason.
        reason: &'static str,
    },
    /// The tenant is being deleted, or its deletion was interrupted.
    #[error("the tenant `{tenant}` is being deleted")]
    TenantBeingDeleted {
        /// The tenant.
        tenant: TenantId,
    },
    /// The runtime is draining, and opens no sessions.
    #[error("the runtime is draining and opens no sessions")]
    Draining,
    /// The journal failed; the error names the file.
    #[error("the journal failed: {0}")]
    Journal(#[from] JournalError),
    /// The journal was not open in time.
    #[error("the journal failed: {reason}")]
    JournalUnavailable {
        /// The reason.
        reason: String,
    },
    /// This build has no journal on the disk.
    #[error(
        "sessions cannot be recorded in `{}`: this build has no journal on the disk", path.display()
    )]
    NoJournal {
        /// The journal's path.
        path: PathBuf,
    },
    /// This version cannot read the session's record.
    #[error("the session {session} cannot be read: {reason}")]
    Unreadable {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: String,
    },
    /// The catalog has no such skills.
    #[error("the catalog `{catalog}` has no {}", list_unknown(unknown))]
    UnknownSkills {
        /// The missing skills.
        unknown: Vec<UnknownSkill>,
        /// The catalog.
        catalog: String,
        /// The names of its skills.
        available: Vec<String>,
    },
    /// The inputs do not fit the manifests of the session's skills. No message contains a sensitive value.
    #[error("the inputs cannot be used: {}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Inputs {
        /// All errors of the inputs.
        errors: Vec<InputError>,
    },
    /// There is no such catalog.
    #[error("there is no catalog `{name}`")]
    UnknownCatalog {
        /// The name that was asked for.
        name: String,
        /// The names of the catalogs.
        available: Vec<String>,
    },
    /// The registry of skills could not load a catalog.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A skill could not be pinned for a session.
    #[error("the skill `{name}` cannot be pinned for the session: {source}")]
    SkillPin {
        /// The skill.
        name: String,
        /// The cause.
        source: SandboxError,
    },
    /// A skill was edited since it was discovered, and its current version cannot be used.
    #[error("the skill `{name}` in `{}` was edited since it was discovered, and cannot be used now: {reason}", path.display())]
    SkillChanged {
        /// Its name.
        name: String,
        /// Its directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A pinned skill of a session is missing or damaged.
    #[error("the session's skill `{name}` ({digest}) {what}: `{}`", path.display())]
    SkillLost {
        /// Its name.
        name: String,
        /// The digest of its content.
        digest: Digest,
        /// What happened to it, for example `was changed`.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// There is no model of this name.
    #[error("there is no model `{name}`")]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// The names of the models.
        available: Vec<String>,
    },
    /// The session names no model, and the runtime has no default.
    #[error("the session names no model, and the runtime has no default")]
    NoModel,
    /// The client of the models' service could not be created.
    #[error("the model `{name}` cannot be called: {reason}")]
    Client {
        /// The model.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Skill instructions in tool results would be lost when the model's service compacts the history.
    #[error(
        "the instructions of skills cannot be delivered in results while the model's service compacts histories: it would drop them"
    )]
    Delivery,
    /// The model's service runs no skills.
    #[error("the model `{model}` runs no hosted skills")]
    NotHosting {
        /// The model.
        model: String,
    },
    /// The model does not say where the files of hosted skills are. So the runtime does not know which key they belong
    /// to.
    #[error("the model `{model}` does not say where the files of hosted skills are")]
    NoHostedFiles {
        /// The model.
        model: String,
    },
    /// The service would refuse a request with these hosted skills.
    #[error("the hosted skills cannot be asked for: {reason}")]
    Hosted {
        /// The reason.
        reason: String,
    },
    /// There is no sandbox of this name.
    #[error("there is no sandbox `{name}`")]
    UnknownExecutor {
        /// The name that was asked for.
        name: String,
        /// The names of the sandboxes.
        available: Vec<String>,
    },
    /// A file cannot be put into a session's workspace, or taken out of it.
    #[error("the file `{}` of the session's workspace cannot be used: {reason}", path.display())]
    WorkspaceFile {
        /// Its path in the workspace.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The session's network cannot be limited as its specification says.
    #[error("the network of the session cannot be limited: {reason}")]
    Network {
        /// Why.
        reason: String,
    },
    /// The Python packages of the session cannot be installed.
    #[error("the Python packages of the session cannot be installed: {reason}")]
    PythonPackages {
        /// Why.
        reason: String,
    },
    /// An MCP server cannot be used.
    #[error("the MCP server `{server}` cannot be used: {reason}")]
    McpServer {
        /// Its name.
        server: String,
        /// Why.
        reason: String,
    },
    /// The session needs values that its record does not have, because they are secret or may be.
    #[error("the session {session} needs {}, which {} not recorded", missing_names(missing), if count_missing(missing) == 1 { "is" } else { "are" })]
    MissingSecrets {
        /// The session.
        session: SessionId,
        /// The missing values.
        missing: SecretNames,
    },
    /// The session's workspace cannot be used.
    #[error("the workspace `{}` cannot be used: {reason}", path.display())]
    Workspace {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The session cannot be forked at this point.
    #[error("the session {session} cannot be forked: {reason}")]
    Fork {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: ForkError,
    },
    /// The data directory cannot be used.
    #[error("the data directory `{}` cannot be used: {reason}", path.display())]
    Data {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another process held a lock of the data directory for too long. It was removing unused content or writing a
    /// cleanup note.
    #[error("the data directory is busy: another process holds the lock `{}`", path.display())]
    DataDirBusy {
        /// The lock's path.
        path: PathBuf,
    },
    /// The embedder's tools cannot be offered to a model.
    #[error(transparent)]
    Tools(#[from] ToolboxError),
    /// The session has no sandbox.
    #[error("the session has no sandbox: {0}")]
    Sandbox(#[source] Error),
    /// The runtime did not stop in time, and the rest was killed.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
    /// An artifact of a new session could not be registered.
    #[error("the artifact `{name}` was not registered: {failure}")]
    Artifact {
        /// The name, as it was given.
        name: String,
        /// The cause.
        failure: SharedArtifactError,
    },
    /// URLs cannot be fetched with these options.
    #[error("URLs cannot be fetched: {reason}")]
    Fetch {
        /// The reason.
        reason: String,
    },
    /// Another error of the actors.
    #[error(transparent)]
    Supervision(conjure_actors::runtime::TreeError),
    /// An operation was interrupted by a defect.
    #[error("{what} was interrupted: {reason}")]
    Interrupted {
        /// The operation.
        what: &'static str,
        /// The reason.
        reason: String,
    },
}

/// A skill that a catalog does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSkill {
    /// The name that was asked for.
    pub name: String,
    /// A similar name that exists.
    pub near: Option<String>,
}

impl RuntimeError {
    /// How to solve the problem, if a way is known and the message does not say it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnknownSkills { unknown, available, .. } => {
                let near: Vec<String> = unknown
                    .iter()
                    .filter_map(|unknown| Some(format!("`{}`", unknown.near.as_ref()?)))
                    .collect();
                if near.is_empty() { available_hint(available)? } else { format!("did you mean {}?", near.join(", ")) }
            }
            Self::UnknownCatalog { available, .. }
            | Self::UnknownModel { available, .. }
            | Self::UnknownExecutor { available, .. } => available_hint(available)?,
            Self::NoModel => {
                "name one by `SessionSpec::model`, or give the runtime one by `RuntimeOptions::model`".to_owned()
            }
            Self::Delivery => {
                "deliver them in the top-level instructions (`SessionSpec::delivery`), or compact by `threshold` instead of \
                 `service_threshold`"
                    .to_owned()
            }
            Self::NotHosting { .. } => {
                "name a model of a service that runs them (`RuntimeOptions::anthropic`), or take skills of a catalog".to_owned()
            }
            Self::NoHostedFiles { .. } => {
                "say so by `Model::hosted_files`: a model that wraps another passes on what that one says, and one without files says \
                 `HostedFiles::Nowhere`"
                    .to_owned()
            }
            Self::NoJournal { .. } => {
                "build it with the feature `sqlite`, or keep sessions in memory by `RuntimeOptions::ephemeral`".to_owned()
            }
            Self::MissingSecrets { .. } => {
                "give it by `Runtime::session_with`, or start without it by `SessionSecrets::allow_missing`".to_owned()
            }
            Self::Inputs { .. } => {
                "give inputs by `SessionSpec::input`, or name only skills that need none of them".to_owned()
            }
            Self::SkillLost { .. } => {
                "put the directory back from a backup, or open a new session, with the history of this one".to_owned()
            }
            Self::SkillChanged { .. } => "mend it, or open the session without it".to_owned(),
            Self::TenantBeingDeleted { .. } => {
                "wait for `Runtime::delete_tenant`, or call it again where it failed".to_owned()
            }
            Self::Workspace { .. } => "put the directory back, or open a new session in another".to_owned(),
            Self::Sandbox(error) => error.hint()?,
            _ => return None,
        })
    }

    /// Whether the same call may succeed a little later, without a change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Session(error) => error.is_retryable(),
            Self::Quota(exceeded) => exceeded.is_retryable(),
            Self::Artifact { failure, .. } => failure.error().is_retryable(),
            Self::TenantBeingDeleted { .. } => true,
            Self::Journal(error) => error.is_retryable(),
            Self::JournalUnavailable { .. } | Self::DataDirBusy { .. } => true,
            Self::Sandbox(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// How long to wait before another attempt, if a queue or a resource was full.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Session(error) => error.retry_after(),
            Self::Sandbox(error) => error.retry_after(),
            Self::Journal(error) => error.retry_after(),
            _ => None,
        }
    }

    pub(crate) fn data(path: &Path, error: &impl std::fmt::Display) -> Self {
        Self::Data { path: path.to_owned(), reason: error.to_string() }
    }

    pub(crate) fn interrupted(what: &'static str, reason: &impl std::fmt::Display) -> Self {
        Self::Interrupted { what, reason: reason.to_string() }
    }
}

impl From<conjure_actors::runtime::TreeError> for RuntimeError {
    fn from(error: conjure_actors::runtime::TreeError) -> Self {
        use conjure_actors::runtime::TreeError as Tree;
        match error {
            Tree::NotFound { session } | Tree::Session(SessionError::NotFound { session }) => {
                Self::NotFound { session }
            }
            Tree::Session(SessionError::Quota(exceeded)) => Self::Quota(exceeded),
            Tree::Session(error) => Self::Session(error),
            Tree::Draining => Self::Draining,
            Tree::Journal(error) => Self::Journal(error),
            Tree::JournalUnavailable { reason } => Self::JournalUnavailable { reason },
            Tree::Shutdown(error) => Self::Shutdown(error),
            other => Self::Supervision(other),
        }
    }
}

fn list_unknown(unknown: &[UnknownSkill]) -> String {
    let names: Vec<String> = unknown.iter().map(|unknown| format!("`{}`", unknown.name)).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("skill{plural} {}", names.join(", "))
}

fn available_hint(available: &[String]) -> Option<String> {
    (!available.is_empty()).then(|| format!("there are {}", available.join(", ")))
}

fn count_missing(missing: &SecretNames) -> usize {
    missing.environment.len() + missing.secrets.len() + missing.inputs.len()
}

fn missing_names(missing: &SecretNames) -> String {
    let variables = missing.environment.iter().map(|name| format!("the variable `{name}`"));
    let secrets = missing.secrets.iter().map(|name| format!("the secret `{name}`"));
    let inputs = missing.inputs.iter().map(|name| format!("the input `{name}`"));
    variables.chain(secrets).chain(inputs).collect::<Vec<_>>().join(", ")
}
