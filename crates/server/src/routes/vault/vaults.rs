//! Routes of vaults: `/v1/vaults`.

use axum::Json;
use conjure_api::{
    ArchivableListQuery, Deleted, DeletedKind, Page, RequestBody as _, Vault, VaultCreate, VaultId,
    VaultUpdate,
};

use crate::access::Scope;
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::now;
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;

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

async fn create(call: Call, _: NoQuery, Body(body): Body) -> JsonResult<Vault> {
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
    call.vaults().create(vault).await.map(Json)
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<Page<Vault>> {
    let query = ArchivableListQuery::from_query(&query)?;
    call.vaults().list(&query).await.map(Json)
}

async fn retrieve(call: Call, Path(id): Path<VaultId>, _: NoQuery) -> JsonResult<Vault> {
    call.vaults().get(id).await.map(Json)
}

async fn update(call: Call, Path(id): Path<VaultId>, _: NoQuery, Body(body): Body) -> JsonResult<Vault> {
    let update = VaultUpdate::from_json(&body)?;
    call.vaults().update(id, update).await.map(Json)
}

/// Deletes a vault. Its credentials are deleted first, so that none remains without a vault.
async fn delete(call: Call, Path(id): Path<VaultId>, _: NoQuery) -> JsonResult<Deleted> {
    let vaults = call.vaults();
    vaults.get(id).await?;
    let credentials = call.credentials(id).await?;
    credentials.delete_all().await?;
    vaults.delete(id).await?;
    // Deletes credentials that were added meanwhile.
    credentials.delete_all().await?;
    Ok(Json(Deleted::new(DeletedKind::Vault, id)))
}

/// Archives a vault, and erases the secrets of its credentials.
async fn archive(call: Call, Path(id): Path<VaultId>, _: NoQuery) -> JsonResult<Vault> {
    let vaults = call.vaults();
    vaults.get(id).await?;
    let credentials = call.credentials(id).await?;
    credentials.archive_all().await?;
    let vault = vaults.archive(id).await?;
    // Archives credentials that were added meanwhile.
    credentials.archive_all().await?;
    Ok(Json(vault))
}
