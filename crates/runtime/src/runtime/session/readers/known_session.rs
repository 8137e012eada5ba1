//! What the factory keeps of one session: its secrets, its workspace, and the parts that were prepared for its start.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::artifacts::ArtifactServices;
use conjure_actors::executors::ExecutorSource;
use conjure_base::Redactor;
use conjure_conversation::Model;
use conjure_prompt::SessionSkill;
use conjure_sandbox::OwnedWorkspace;
use conjure_skill::Inputs;

use crate::runtime::session::factory::hosted_sessions::HostedSessionFiles;
use crate::runtime::session::input::session_secrets::SessionSecrets;

/// What the factory keeps of a session in addition to its event log.
#[derive(Default)]
pub(crate) struct VolatileSessionState {
    pub(crate) secrets: SessionSecrets,
    /// The parts for the start that is about to happen.
    pub(crate) parts: Option<PreparedParts>,
    /// A workspace that is removed when this process ends.
    pub(crate) workspace: Option<Arc<OwnedWorkspace>>,
}

/// The parts of a session before its sandbox is supervised.
pub(crate) struct PreparedParts {
    /// The name of the model in the profile from which the parts were built.
    pub(crate) model_name: Option<String>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) skills: Vec<Arc<SessionSkill>>,
    /// The source of its sandbox; `None` if it has no sandbox.
    pub(crate) source: Option<Arc<dyn ExecutorSource>>,
    pub(crate) redactor: Redactor,
    /// The text for the model about the inputs.
    pub(crate) inputs: String,
    /// The values of the inputs.
    pub(crate) values: Inputs,
    /// The directory on this machine that holds the session's files.
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) artifacts: Option<ArtifactServices>,
    /// The parts of its MCP servers.
    #[cfg(feature = "mcp")]
    pub(crate) servers: Vec<crate::runtime::session::mcp::ServerParts>,
    /// Its files at the service that runs its hosted skills.
    pub(crate) hosted: Option<HostedSessionFiles>,
}
