//! Why a runtime did not do what it was asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_actors::artifacts::ArtifactFailure;
use conjure_actors::registry::RegistryError;
use conjure_actors::session::SessionError;
use conjure_actors::supervision::ShutdownError;
use conjure_actors::tenants::QuotaExceeded;
use conjure_base::{Digest, SessionId, TenantId};
use conjure_conversation::Withheld;
use conjure_journal::JournalError;
use conjure_sandbox::SandboxError;
use conjure_toolbox::ToolboxError;

use super::inputs::InputFault;
use crate::error::Error;

/// A failure of a [`Runtime`](crate::Runtime). Its message says what failed, where, and why; [`RuntimeError::hint`] how to mend
/// it, where the message does not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The tenant has no such session.
    #[error("there is no session {session}")]
    NotFound {
        /// What was asked for.
        session: SessionId,
    },
    /// A session did not do it.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The tenant has as much as it may.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// What the tenant has on the disk is limited, and cannot be measured.
    #[error(
        "the tenant `{tenant}` gets no more of the disk, since its data folder cannot be measured: {reason}; delete sessions, or \
         files of their workspaces, or lift its quotas of the disk"
    )]
    Unmeasured {
        /// Whose.
        tenant: TenantId,
        /// What of the folder is in the way.
        reason: &'static str,
    },
    /// The tenant is being deleted, or its deletion has broken off.
    #[error("the tenant `{tenant}` is being deleted")]
    BeingDeleted {
        /// Which.
        tenant: TenantId,
    },
    /// The runtime is being emptied, and opens no sessions.
    #[error("the runtime is being emptied and opens no sessions")]
    Draining,
    /// The journal did not do it; the error names the file.
    #[error("the journal failed: {0}")]
    Journal(#[from] JournalError),
    /// The journal was not open in time.
    #[error("the journal failed: {reason}")]
    JournalAway {
        /// What is known of it.
        reason: String,
    },
    /// This build keeps no journal on the disk.
    #[error(
        "sessions cannot be recorded in `{}`: this build has no journal on the disk", path.display()
    )]
    NoJournal {
        /// Where it would be.
        path: PathBuf,
    },
    /// The session's record is not one that this version reads.
    #[error("the session {session} cannot be read: {reason}")]
    Unreadable {
        /// Which.
        session: SessionId,
        /// What is wrong with it.
        reason: String,
    },
    /// The catalog has no such skills.
    #[error("the catalog `{catalog}` has no {}", listed(unknown))]
    UnknownSkills {
        /// Those that it does not have.
        unknown: Vec<UnknownSkill>,
        /// Where they were looked for.
        catalog: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// The inputs are not what the manifests of the session's skills ask for. No message has a value that is sensitive.
    #[error("the inputs cannot be used: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Inputs {
        /// Everything that is wrong with them.
        faults: Vec<InputFault>,
    },
    /// Nobody registered such a catalog.
    #[error("there is no catalog `{name}`")]
    UnknownCatalog {
        /// What was asked for.
        name: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// The registry of skills did not load a catalog.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A skill cannot be kept for a session.
    #[error("the skill `{name}` cannot be kept for the session: {source}")]
    Pin {
        /// Which.
        name: String,
        /// Why.
        source: SandboxError,
    },
    /// A skill was edited since it was found, and what it is now cannot be used.
    #[error("the skill `{name}` in `{}` was edited since it was found, and cannot be used now: {reason}", path.display())]
    SkillChanged {
        /// Its name.
        name: String,
        /// Its folder.
        path: PathBuf,
        /// What is wrong with it now.
        reason: String,
    },
    /// What a session keeps of a skill is not there any more, or not what it was.
    #[error("the session's skill `{name}` ({digest}) {what}: `{}`", path.display())]
    SkillLost {
        /// Its name.
        name: String,
        /// Which content of it.
        digest: Digest,
        /// What became of it.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// Nobody gave a model of this name.
    #[error("there is no model `{name}`")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// The session names no model, and the runtime has no default.
    #[error("the session names no model, and the runtime has no default")]
    NoModel,
    /// The client of the models' service cannot be made.
    #[error("the model `{name}` cannot be called: {reason}")]
    Client {
        /// Which model.
        name: String,
        /// Why.
        reason: String,
    },
    /// What results hold of a skill's instructions would be lost when the model's service compacts the history.
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
    /// The model does not say where the files of hosted skills are, so that nobody knows under whose key they would lie.
    #[error("the model `{model}` does not say where the files of hosted skills are")]
    NoHostedFiles {
        /// The model.
        model: String,
    },
    /// The service takes no request with these hosted skills.
    #[error("the hosted skills cannot be asked for: {reason}")]
    Hosted {
        /// Why.
        reason: String,
    },
    /// There is no sandbox of this name.
    #[error("there is no sandbox `{name}`")]
    UnknownExecutor {
        /// What was asked for.
        name: String,
        /// The names that there are.
        available: Vec<String>,
    },
    /// The session needs what was not recorded, since it is secret or may be.
    #[error("the session {session} needs {}, which {} not recorded", names(missing), if count(missing) == 1 { "is" } else { "are" })]
    Missing {
        /// Which session.
        session: SessionId,
        /// What is missing.
        missing: Withheld,
    },
    /// The folder that the session works in cannot be used.
    #[error("the workspace `{}` cannot be used: {reason}", path.display())]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The data folder cannot be used.
    #[error("the data folder `{}` cannot be used: {reason}", path.display())]
    Data {
        /// The folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another runtime removed what a tenant's sessions do not use any more, or noted what deletions leave at a service, and did not end in
    /// time.
    #[error("the data folder is busy: another process holds the lock `{}`", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// The host's tools are not what a model can be told of.
    #[error(transparent)]
    Tools(#[from] ToolboxError),
    /// The sandbox cannot be had.
    #[error("the session has no sandbox: {0}")]
    Sandbox(#[source] Error),
    /// It did not stop in time, and was ended.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
    /// The session was not given an artifact.
    #[error("the artifact `{name}` was not registered: {failure}")]
    Artifact {
        /// Its name, as it was given.
        name: String,
        /// Why.
        failure: ArtifactFailure,
    },
    /// URLs cannot be fetched so.
    #[error("URLs cannot be fetched: {reason}")]
    Fetch {
        /// Why.
        reason: String,
    },
    /// Another failure of the tree.
    #[error(transparent)]
    Tree(conjure_actors::runtime::RuntimeError),
    /// A part of the work ended by a defect.
    #[error("{what} broke off: {reason}")]
    BrokeOff {
        /// What.
        what: &'static str,
        /// How.
        reason: String,
    },
}

/// A name that a catalog does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSkill {
    /// What was asked for.
    pub name: String,
    /// What may have been meant.
    pub near: Option<String>,
}

impl RuntimeError {
    /// How to mend it, where the message does not say so and we know.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnknownSkills { unknown, available, .. } => {
                let near: Vec<String> = unknown
                    .iter()
                    .filter_map(|unknown| Some(format!("`{}`", unknown.near.as_ref()?)))
                    .collect();
                if near.is_empty() { there_are(available)? } else { format!("did you mean {}?", near.join(", ")) }
            }
            Self::UnknownCatalog { available, .. }
            | Self::UnknownModel { available, .. }
            | Self::UnknownExecutor { available, .. } => there_are(available)?,
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
            Self::Missing { .. } => {
                "give it by `Runtime::session_with`, or do without it by `Given::without_the_rest`".to_owned()
            }
            Self::Inputs { .. } => {
                "give inputs by `SessionSpec::input`, or name only skills that need none of them".to_owned()
            }
            Self::SkillLost { .. } => {
                "put the folder back from a backup, or open a new session, with the history of this one".to_owned()
            }
            Self::SkillChanged { .. } => "mend it, or open the session without it".to_owned(),
            Self::BeingDeleted { .. } => {
                "wait for `Runtime::delete_tenant`, or call it again where it failed".to_owned()
            }
            Self::Workspace { .. } => "put the folder back, or open a new session in another".to_owned(),
            Self::Sandbox(error) => error.hint()?,
            _ => return None,
        })
    }

    /// Whether the same call may well succeed a little later, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Session(error) => error.is_retryable(),
            Self::Quota(exceeded) => exceeded.is_retryable(),
            Self::Artifact { failure, .. } => failure.error().is_retryable(),
            Self::BeingDeleted { .. } => true,
            Self::Journal(error) => error.is_retryable(),
            Self::JournalAway { .. } | Self::Busy { .. } => true,
            Self::Sandbox(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// When it is worth another try, where something was too full for this one.
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

    pub(crate) fn broke_off(what: &'static str, reason: &impl std::fmt::Display) -> Self {
        Self::BrokeOff { what, reason: reason.to_string() }
    }
}

impl From<conjure_actors::runtime::RuntimeError> for RuntimeError {
    fn from(error: conjure_actors::runtime::RuntimeError) -> Self {
        use conjure_actors::runtime::RuntimeError as Tree;
        match error {
            Tree::NotFound { session } | Tree::Session(SessionError::NotFound { session }) => {
                Self::NotFound { session }
            }
            Tree::Session(SessionError::Quota(exceeded)) => Self::Quota(exceeded),
            Tree::Session(error) => Self::Session(error),
            Tree::Draining => Self::Draining,
            Tree::Journal(error) => Self::Journal(error),
            Tree::JournalAway { reason } => Self::JournalAway { reason },
            Tree::Shutdown(error) => Self::Shutdown(error),
            other => Self::Tree(other),
        }
    }
}

fn listed(unknown: &[UnknownSkill]) -> String {
    let names: Vec<String> = unknown.iter().map(|unknown| format!("`{}`", unknown.name)).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("skill{plural} {}", names.join(", "))
}

fn there_are(available: &[String]) -> Option<String> {
    (!available.is_empty()).then(|| format!("there are {}", available.join(", ")))
}

fn count(missing: &Withheld) -> usize {
    missing.environment.len() + missing.secrets.len() + missing.inputs.len()
}

fn names(missing: &Withheld) -> String {
    let variables = missing.environment.iter().map(|name| format!("the variable `{name}`"));
    let secrets = missing.secrets.iter().map(|name| format!("the secret `{name}`"));
    let inputs = missing.inputs.iter().map(|name| format!("the input `{name}`"));
    variables.chain(secrets).chain(inputs).collect::<Vec<_>>().join(", ")
}
