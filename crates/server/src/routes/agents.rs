//! Routes of agents: `/v1/agents`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conjure_api::{
    Agent, AgentCreate, AgentId, AgentListQuery, AgentSkill, AgentUpdate, ExecutionIdentity, ModelConfig,
    Page, PageQuery, Patch, Tool, agent_version_query, check_mcp, patch_metadata,
};

use crate::access::{Caller, Scope};
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::{AgentParts, Agents, now};
use crate::routes::route::Route;
use crate::state::ServerState;

type Shared = State<Arc<ServerState>>;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Admin, "/v1/agents", create).idempotent(),
        Route::get("/v1/agents", list),
        Route::get("/v1/agents/{agent_id}", retrieve),
        Route::post(Scope::Admin, "/v1/agents/{agent_id}", update),
        Route::post(Scope::Admin, "/v1/agents/{agent_id}/archive", archive),
        Route::get("/v1/agents/{agent_id}/versions", versions),
    ]
}

async fn create(
    State(state): Shared,
    caller: Caller,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Agent>, ApiError> {
    let create = AgentCreate::from_json(&body)?;
    let parts = AgentParts::new(&state, &caller.tenant);
    let time = now();
    let agent = Agent {
        id: AgentId::random().map_err(|error| ApiError::internal(error.to_string()))?,
        archived_at: None,
        created_at: time,
        description: create.description,
        execution_identity: ExecutionIdentity::default(),
        mcp_servers: create.mcp_servers,
        metadata: create.metadata,
        model: parts.model(create.model)?,
        multiagent: None,
        name: create.name,
        skills: parts.skills(create.skills).await?,
        system: create.system,
        tools: parts.tools(create.tools)?,
        updated_at: time,
        version: 1,
    };
    Agents::new(&*state.records, &caller.tenant).create(agent).await.map(Json)
}

async fn list(
    State(state): Shared,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<Agent>>, ApiError> {
    let query = AgentListQuery::from_query(&query)?;
    Agents::new(&*state.records, &caller.tenant).list(&query).await.map(Json)
}

async fn retrieve(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Agent>, ApiError> {
    let version = agent_version_query(&query)?;
    Agents::new(&*state.records, &caller.tenant).version(id.parse()?, version).await.map(Json)
}

/// An update with resolved names. It can be applied again after a conflicting write.
struct ResolvedUpdate {
    update: AgentUpdate,
    model: Option<ModelConfig>,
    skills: Patch<Vec<AgentSkill>>,
    tools: Patch<Vec<Tool>>,
}

async fn update(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Agent>, ApiError> {
    let id: AgentId = id.parse()?;
    let mut update = AgentUpdate::from_json(&body)?;
    let parts = AgentParts::new(&state, &caller.tenant);
    let resolved = ResolvedUpdate {
        model: update.model.take().map(|model| parts.model(model)).transpose()?,
        skills: match std::mem::take(&mut update.skills) {
            Patch::Set(skills) => Patch::Set(parts.skills(skills).await?),
            Patch::Clear => Patch::Clear,
            Patch::Keep => Patch::Keep,
        },
        tools: match std::mem::take(&mut update.tools) {
            Patch::Set(tools) => Patch::Set(parts.tools(tools)?),
            patch => patch,
        },
        update,
    };
    let agents = Agents::new(&*state.records, &caller.tenant);
    agents.update(id, resolved.update.version, |agent| updated(agent, &resolved)).await.map(Json)
}

/// The agent after an update.
fn updated(mut agent: Agent, resolved: &ResolvedUpdate) -> Result<Agent, ApiError> {
    let ResolvedUpdate { update, model, skills, tools } = resolved;
    agent.description = update.description.clone().apply(agent.description);
    agent.system = update.system.clone().apply(agent.system);
    agent.name = update.name.clone().unwrap_or(agent.name);
    agent.skills = skills.clone().apply_or_default(agent.skills);
    agent.tools = tools.clone().apply_or_default(agent.tools);
    agent.mcp_servers = update.mcp_servers.clone().apply_or_default(agent.mcp_servers);
    check_mcp(&agent.mcp_servers, &agent.tools)?;
    if let Some(model) = model {
        // An update without an effort keeps the former one.
        let effort = model.effort.or(agent.model.effort);
        agent.model = ModelConfig { effort, ..model.clone() };
    }
    patch_metadata(&mut agent.metadata, update.metadata.clone())?;
    Ok(agent)
}

async fn archive(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Agent>, ApiError> {
    Agents::new(&*state.records, &caller.tenant).archive(id.parse()?).await.map(Json)
}

async fn versions(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<Agent>>, ApiError> {
    let page = PageQuery::agent_versions(&query)?;
    Agents::new(&*state.records, &caller.tenant).versions(id.parse()?, &page).await.map(Json)
}
