//! Creates a client of the MCP server, with skills, the tools of its own sandbox, and an agent.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::TenantId;
use conjure_mcp::server::{AgentRunner, ServedClient};
use conjure_runtime::{RuntimeError, SandboxTools, SessionAgents};

use crate::http::ApiError;
use crate::state::ServerState;

/// The idle time after which a sandbox is closed.
const SANDBOX_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The pattern in `[serve.models]` that selects the model of agents.
const ANY_MODEL: &str = "*";

/// A client that is not registered yet.
pub(crate) struct NewClient {
    pub(super) client: ServedClient,
    pub(super) tools: Arc<SandboxTools>,
}

/// Creates a client of this tenant. Its first call opens its sandbox.
///
/// # Errors
/// If the skills cannot be listed.
pub(crate) async fn new_client(state: &ServerState, tenant: &TenantId) -> Result<NewClient, ApiError> {
    let runtime = &state.runtime;
    let skills = match runtime.default_skills(tenant) {
        Err(RuntimeError::UnknownCatalog { .. }) => Vec::new(),
        skills => skills?,
    };
    let definitions = runtime.workbench_definitions(&skills).await?;
    let (opener, owner, given) = (runtime.clone(), tenant.clone(), skills.clone());
    let open = move || {
        let (runtime, tenant, skills) = (opener.clone(), owner.clone(), given.clone());
        Box::pin(
            async move { runtime.open_workbench(&tenant, skills).await.map_err(|error| error_text(&error)) },
        ) as _
    };
    let tools = Arc::new(SandboxTools::new(definitions.into(), SANDBOX_IDLE_TIMEOUT, Box::new(open)));
    let agent = state.settings.get().models.get(ANY_MODEL).map(|model| {
        let agents = SessionAgents::new(runtime.clone(), tenant.clone(), Some(model.clone()));
        Arc::new(agents) as Arc<dyn AgentRunner>
    });
    Ok(NewClient { client: ServedClient::new(skills, Arc::clone(&tools) as _, agent), tools })
}

/// The reason why there is no sandbox, with a hint.
fn error_text(error: &RuntimeError) -> String {
    match error.hint() {
        Some(hint) => format!("there is no sandbox: {error}; {hint}"),
        None => format!("there is no sandbox: {error}"),
    }
}
