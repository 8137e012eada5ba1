//! What the factory remembers of one session: its secrets, its workspace, and the parts that were prepared for its start.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::artifacts::ArtifactServices;
use conjure_actors::executors::ExecutorSource;
use conjure_base::Redactor;
use conjure_conversation::Model;
use conjure_prompt::SessionSkill;
use conjure_sandbox::OwnedWorkspace;
use conjure_skill::Inputs;

use crate::runtime::session::hosted_sessions::HostedSessionFiles;
use crate::runtime::session::session_secrets::SessionSecrets;

/// What is known of a session beside its record.
#[derive(Default)]
pub(super) struct SessionInputs {
    pub(super) secrets: SessionSecrets,
    /// Prepared for the start that is about to happen.
    pub(super) parts: Option<PreparedParts>,
    /// A workspace that ends with this process.
    pub(super) workspace: Option<Arc<OwnedWorkspace>>,
}

/// The parts of a session before its sandbox is supervised.
pub(crate) struct PreparedParts {
    /// The name of the model in the profile that they were built for.
    pub(super) model_name: Option<String>,
    pub(super) model: Arc<dyn Model>,
    pub(super) skills: Vec<Arc<SessionSkill>>,
    /// `None`: it has no sandbox.
    pub(super) source: Option<Arc<dyn ExecutorSource>>,
    pub(super) redactor: Redactor,
    /// The text for the model about the inputs.
    pub(super) inputs: String,
    /// The values of the inputs.
    pub(super) values: Inputs,
    /// The folder on this machine that holds the session's files.
    pub(super) workspace: Option<PathBuf>,
    pub(super) artifacts: Option<ArtifactServices>,
    /// Its MCP servers.
    #[cfg(feature = "mcp")]
    pub(super) servers: Vec<crate::runtime::session::mcp::ServerParts>,
    /// Its files at the service that runs its skills.
    pub(super) hosted: Option<HostedSessionFiles>,
}
