//! Creates a session:
//!
//! 1. The agent and the environment are looked up.
//! 2. The runtime opens the session.
//! 3. The first messages are sent.
//! 4. The row is written.
//!
//! If a step fails, the session is deleted. A crash before the last step leaves a session that no client knows. The next start deletes it
//! (`sweep`).

use conjure_actors::session::Session;
use conjure_api::{
    AgentOverrides, CloudConfig, ContentBlock, Environment, EnvironmentConfig, Patch, SessionAgent,
    SessionCreate, VaultId, check_mcp,
};
use conjure_base::TenantId;

use super::interaction::send_message;
use super::network::{open_error, session_network};
use super::profile::{cost_micros, session_spec};
use super::resources::{files_note, new_resources, put_resource, with_directories};
use super::row::SessionRow;
use super::skills::load_skills;
use super::store::{SessionStore, StoredSession};
use crate::access::Caller;
use crate::events::message_blocks;
use crate::http::ApiError;
use crate::objects::{AgentParts, Agents, Environments, Vaults, python_packages};
use crate::state::ServerState;

/// The metadata that marks a runtime session as created by the server.
pub(crate) const SERVER_NOTE: (&str, &str) = ("conjure.serve", "session");

/// Creates a session. The caller must not drop the future, or else a session without a row is left.
///
/// # Errors
/// 400 and 404 if an object that the request names does not exist or cannot be used.
pub(crate) async fn create(
    state: &ServerState,
    caller: &Caller,
    create: SessionCreate,
) -> Result<StoredSession, ApiError> {
    let tenant = &caller.tenant;
    let agents = Agents::new(&*state.records, tenant);
    let agent = agents.version(create.agent.id.parse()?, create.agent.version).await?;
    if agent.archived_at.is_some() {
        return Err(ApiError::invalid(format!("the agent `{}` is archived; name another", agent.id)));
    }
    for (place, content) in create.initial_messages.iter().enumerate() {
        message_blocks(&format!("initial_events.{place}"), content.clone())?;
    }
    let resources = new_resources(state, tenant, &create.resources).await?;
    let agent = overridden(state, caller, agent.into(), create.agent.overrides).await?;
    let vault_ids = vaults_in_use(state, tenant, &create.vault_ids).await?;
    let environments = Environments::new(&*state.records, tenant);
    let environment = environments.get(create.environment_id.parse()?).await?;
    let sandboxes = usable_config(&environment)?;
    let spec = session_spec(tenant, &agent, &files_note(state, &resources))?;
    let (note, value) = SERVER_NOTE;
    let mut spec = with_directories(spec)
        .metadata(note, value)
        .network(session_network(&environment, sandboxes, &agent)?)
        .python_packages(python_packages(&sandboxes.packages)?)
        .vaults(vault_ids.iter().map(ToString::to_string))
        .loaded_skills(load_skills(state, tenant, &agent).await?);
    if let Some(budget) = create.budget {
        spec = spec.max_cost_micros(cost_micros(budget));
    }
    if let Some(title) = &create.title {
        spec = spec.title(title.as_str());
    }
    let session = state.runtime.open(spec).await.map_err(|error| open_error(error, &environment))?;
    let row = SessionRow {
        agent,
        environment_id: environment.id,
        title: create.title,
        metadata: create.metadata,
        resources,
        budget: create.budget,
        archived_at: None,
        vault_ids,
    };
    match fill(state, tenant, &session, row, create.initial_messages).await {
        Ok(stored) => Ok(stored),
        Err(error) => {
            // No client knows the session. If the deletion fails, the next start deletes it.
            let row_deleted = SessionStore::new(&*state.records, tenant).delete(session.id()).await;
            let deleted = state.runtime.delete(tenant, session.id()).await;
            let is_gone = row_deleted.is_ok() && deleted.is_ok();
            Err(if is_gone { error.with_known_outcome() } else { error.with_unknown_outcome() })
        }
    }
}

/// Copies the resources of a session, sends its first messages, and stores its row.
async fn fill(
    state: &ServerState,
    tenant: &TenantId,
    session: &Session,
    row: SessionRow,
    messages: Vec<Vec<ContentBlock>>,
) -> Result<StoredSession, ApiError> {
    for (place, resource) in row.resources.iter().enumerate() {
        put_resource(state, tenant, session.id(), resource, &format!("resources.{place}")).await?;
    }
    for (place, content) in messages.into_iter().enumerate() {
        send_message(session, &format!("initial_events.{place}"), content).await?;
    }
    SessionStore::new(&*state.records, tenant).insert(session.id(), row).await
}

/// The configuration of sandboxes on this server. Fails if sessions cannot use the environment.
fn usable_config(environment: &Environment) -> Result<&CloudConfig, ApiError> {
    if environment.archived_at.is_some() {
        return Err(ApiError::invalid(format!(
            "the environment `{}` is archived; name another",
            environment.id
        )));
    }
    match &environment.config {
        EnvironmentConfig::Cloud(config) => Ok(config),
        EnvironmentConfig::SelfHosted => Err(ApiError::invalid(format!(
            "environment_id: the tools of the environment `{}` are to run in your own workers, and this server cannot use workers yet; name an \
             environment of type `cloud`, whose tools run in this server's sandboxes",
            environment.id
        ))),
    }
}

/// The vaults of a new session, without duplicates. Fails if one is archived.
async fn vaults_in_use(
    state: &ServerState,
    tenant: &TenantId,
    ids: &[String],
) -> Result<Vec<VaultId>, ApiError> {
    let vaults = Vaults::new(&*state.records, tenant);
    let mut found = Vec::new();
    for id in ids {
        let id = vaults.get_active(id.parse()?).await?.id;
        if !found.contains(&id) {
            found.push(id);
        }
    }
    Ok(found)
}

/// The agent with the overrides of the session.
async fn overridden(
    state: &ServerState,
    caller: &Caller,
    mut agent: SessionAgent,
    overrides: AgentOverrides,
) -> Result<SessionAgent, ApiError> {
    let AgentOverrides { mcp_servers, model, skills, system, tools } = overrides;
    let parts = AgentParts::new(state, &caller.tenant);
    if let Some(model) = model {
        agent.model = parts.model(model)?;
    }
    agent.system = system.apply(agent.system);
    match tools {
        Patch::Keep => {}
        Patch::Clear => agent.tools = Vec::new(),
        Patch::Set(tools) => agent.tools = parts.tools(tools)?,
    }
    agent.mcp_servers = mcp_servers.apply_or_default(agent.mcp_servers);
    check_mcp(&agent.mcp_servers, &agent.tools)?;
    match skills {
        Patch::Keep => {}
        Patch::Clear => agent.skills = Vec::new(),
        Patch::Set(skills) => agent.skills = parts.skills(skills).await?,
    }
    Ok(agent)
}
