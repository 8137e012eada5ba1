//! Routes of environments: `/v1/environments`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conjure_api::{
    Deleted, DeletedKind, Environment, EnvironmentCreate, EnvironmentId, EnvironmentListQuery,
    EnvironmentScope, EnvironmentUpdate, Page,
};

use crate::access::{Caller, Scope};
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::{Environments, now};
use crate::routes::route::Route;
use crate::state::ServerState;

type Shared = State<Arc<ServerState>>;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Admin, "/v1/environments", create).idempotent(),
        Route::get("/v1/environments", list),
        Route::get("/v1/environments/{environment_id}", retrieve),
        Route::post(Scope::Admin, "/v1/environments/{environment_id}", update),
        Route::delete(Scope::Admin, "/v1/environments/{environment_id}", delete),
        Route::post(Scope::Admin, "/v1/environments/{environment_id}/archive", archive),
    ]
}

async fn create(
    State(state): Shared,
    caller: Caller,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Environment>, ApiError> {
    let create = EnvironmentCreate::from_json(&body)?;
    let time = now();
    let environment = Environment {
        id: EnvironmentId::random().map_err(|error| ApiError::internal(error.to_string()))?,
        archived_at: None,
        config: create.config,
        created_at: time,
        description: create.description,
        metadata: create.metadata,
        name: create.name,
        scope: Some(EnvironmentScope::Organization),
        updated_at: time,
    };
    Environments::new(&*state.records, &caller.tenant).create(environment).await.map(Json)
}

async fn list(
    State(state): Shared,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<Environment>>, ApiError> {
    let query = EnvironmentListQuery::from_query(&query)?;
    Environments::new(&*state.records, &caller.tenant).list(&query).await.map(Json)
}

async fn retrieve(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Environment>, ApiError> {
    Environments::new(&*state.records, &caller.tenant).get(id.parse()?).await.map(Json)
}

async fn update(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Environment>, ApiError> {
    let id = id.parse()?;
    let update = EnvironmentUpdate::from_json(&body)?;
    Environments::new(&*state.records, &caller.tenant).update(id, update).await.map(Json)
}

async fn delete(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Deleted>, ApiError> {
    let id: EnvironmentId = id.parse()?;
    Environments::new(&*state.records, &caller.tenant).delete(id).await?;
    Ok(Json(Deleted::new(DeletedKind::Environment, id)))
}

async fn archive(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Environment>, ApiError> {
    Environments::new(&*state.records, &caller.tenant).archive(id.parse()?).await.map(Json)
}
