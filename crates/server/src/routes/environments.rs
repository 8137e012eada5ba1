//! Routes of environments: `/v1/environments`.

use axum::Json;
use conjure_api::{
    ArchivableListQuery, Deleted, DeletedKind, Environment, EnvironmentCreate, EnvironmentId,
    EnvironmentScope, EnvironmentUpdate, Page, RequestBody as _,
};

use crate::access::Scope;
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::now;
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;

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

async fn create(call: Call, _: NoQuery, Body(body): Body) -> JsonResult<Environment> {
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
    call.environments().create(environment).await.map(Json)
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<Page<Environment>> {
    let query = ArchivableListQuery::from_query(&query)?;
    call.environments().list(&query).await.map(Json)
}

async fn retrieve(call: Call, Path(id): Path<EnvironmentId>, _: NoQuery) -> JsonResult<Environment> {
    call.environments().get(id).await.map(Json)
}

async fn update(
    call: Call,
    Path(id): Path<EnvironmentId>,
    _: NoQuery,
    Body(body): Body,
) -> JsonResult<Environment> {
    let update = EnvironmentUpdate::from_json(&body)?;
    call.environments().update(id, update).await.map(Json)
}

async fn delete(call: Call, Path(id): Path<EnvironmentId>, _: NoQuery) -> JsonResult<Deleted> {
    call.environments().delete(id).await?;
    Ok(Json(Deleted::new(DeletedKind::Environment, id)))
}

async fn archive(call: Call, Path(id): Path<EnvironmentId>, _: NoQuery) -> JsonResult<Environment> {
    call.environments().archive(id).await.map(Json)
}
