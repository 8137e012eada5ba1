//! Routes of agents: `/v1/agents`.

use axum::Json;
use conjure_api::{
    Agent, AgentCreate, AgentId, AgentListQuery, AgentSkill, AgentUpdate, ExecutionIdentity, ModelConfig,
    Page, PageQuery, Patch, RequestBody as _, Tool, agent_version_query, check_mcp, patch_metadata,
};

use crate::access::Scope;
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::now;
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;

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

async fn create(call: Call, _: NoQuery, Body(body): Body) -> JsonResult<Agent> {
    let create = AgentCreate::from_json(&body)?;
    let parts = call.agent_parts();
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
    call.agents().create(agent).await.map(Json)
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<Page<Agent>> {
    let query = AgentListQuery::from_query(&query)?;
    call.agents().list(&query).await.map(Json)
}

async fn retrieve(call: Call, Path(id): Path<AgentId>, RawQuery(query): RawQuery) -> JsonResult<Agent> {
    let version = agent_version_query(&query)?;
    call.agents().version(id, version).await.map(Json)
}

/// An update with resolved names. It can be applied again after a conflicting write.
struct ResolvedUpdate {
    update: AgentUpdate,
    model: Option<ModelConfig>,
    skills: Patch<Vec<AgentSkill>>,
    tools: Patch<Vec<Tool>>,
}

async fn update(call: Call, Path(id): Path<AgentId>, _: NoQuery, Body(body): Body) -> JsonResult<Agent> {
    let mut update = AgentUpdate::from_json(&body)?;
    let parts = call.agent_parts();
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
    let agents = call.agents();
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

async fn archive(call: Call, Path(id): Path<AgentId>, _: NoQuery) -> JsonResult<Agent> {
    call.agents().archive(id).await.map(Json)
}

async fn versions(call: Call, Path(id): Path<AgentId>, RawQuery(query): RawQuery) -> JsonResult<Page<Agent>> {
    let page = PageQuery::agent_versions(&query)?;
    call.agents().versions(id, &page).await.map(Json)
}
