//! Routes of vaults: `/v1/vaults`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conjure_api::{Deleted, DeletedKind, Page, Vault, VaultCreate, VaultId, VaultListQuery, VaultUpdate};

use crate::access::{Caller, Scope};
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::{Credentials, Vaults, now};
use crate::routes::route::Route;
use crate::state::ServerState;

type Shared = State<Arc<ServerState>>;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Admin, "/v1/vaults", create).idempotent(),
        Route::get("/v1/vaults", list),
        Route::get("/v1/vaults/{vault_id}", retrieve),
        Route::post(Scope::Admin, "/v1/vaults/{vault_id}", update),
        Route::delete(Scope::Admin, "/v1/vaults/{vault_id}", delete),
        Route::post(Scope::Admin, "/v1/vaults/{vault_id}/archive", archive),
    ]
}

async fn create(
    State(state): Shared,
    caller: Caller,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Vault>, ApiError> {
    let create = VaultCreate::from_json(&body)?;
    let time = now();
    let vault = Vault {
        id: VaultId::random().map_err(|error| ApiError::internal(error.to_string()))?,
        archived_at: None,
        created_at: time,
        display_name: create.display_name,
        metadata: create.metadata,
        updated_at: time,
    };
    Vaults::new(&*state.records, &caller.tenant).create(vault).await.map(Json)
}

async fn list(
    State(state): Shared,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<Vault>>, ApiError> {
    let query = VaultListQuery::from_query(&query)?;
    Vaults::new(&*state.records, &caller.tenant).list(&query).await.map(Json)
}

async fn retrieve(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Vault>, ApiError> {
    Vaults::new(&*state.records, &caller.tenant).get(id.parse()?).await.map(Json)
}

async fn update(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Vault>, ApiError> {
    let id = id.parse()?;
    let update = VaultUpdate::from_json(&body)?;
    Vaults::new(&*state.records, &caller.tenant).update(id, update).await.map(Json)
}

/// Deletes a vault. Its credentials are deleted first, so that none remains without a vault.
async fn delete(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Deleted>, ApiError> {
    let id: VaultId = id.parse()?;
    let vaults = Vaults::new(&*state.records, &caller.tenant);
    vaults.get(id).await?;
    let credentials = Credentials::open(&state, &caller.tenant, id).await?;
    credentials.delete_all().await?;
    vaults.delete(id).await?;
    // Deletes credentials that were added meanwhile.
    credentials.delete_all().await?;
    Ok(Json(Deleted::new(DeletedKind::Vault, id)))
}

/// Archives a vault, and erases the secrets of its credentials.
async fn archive(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Vault>, ApiError> {
    let id: VaultId = id.parse()?;
    let vaults = Vaults::new(&*state.records, &caller.tenant);
    vaults.get(id).await?;
    let credentials = Credentials::open(&state, &caller.tenant, id).await?;
    credentials.archive_all().await?;
    let vault = vaults.archive(id).await?;
    // Archives credentials that were added meanwhile.
    credentials.archive_all().await?;
    Ok(Json(vault))
}
