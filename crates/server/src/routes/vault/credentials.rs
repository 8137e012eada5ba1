//! Routes of a vault's credentials: `/v1/vaults/{vault_id}/credentials`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conjure_api::{
    Credential, CredentialAuth, CredentialCreate, CredentialId, CredentialUpdate, CredentialValidation,
    Deleted, DeletedKind, McpProbe, Page, RefreshProbe, RefreshStatus, ValidationStatus, VaultId,
    VaultListQuery,
};
use conjure_runtime::{CredentialCheck, RenewalOutcome};

use crate::access::{Caller, Scope};
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::{Credentials, Vaults, now};
use crate::routes::route::Route;
use crate::state::ServerState;

type Shared = State<Arc<ServerState>>;

const ALL: &str = "/v1/vaults/{vault_id}/credentials";
const ONE: &str = "/v1/vaults/{vault_id}/credentials/{credential_id}";

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post(Scope::Admin, ALL, create).idempotent(),
        Route::get(ALL, list),
        Route::get(ONE, retrieve),
        Route::post(Scope::Admin, ONE, update),
        Route::delete(Scope::Admin, ONE, delete),
        Route::post(Scope::Admin, "/v1/vaults/{vault_id}/credentials/{credential_id}/archive", archive),
        Route::post(
            Scope::Admin,
            "/v1/vaults/{vault_id}/credentials/{credential_id}/mcp_oauth_validate",
            validate,
        ),
    ]
}

async fn create(
    State(state): Shared,
    caller: Caller,
    Path(vault): Path<String>,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Credential>, ApiError> {
    let vault: VaultId = vault.parse()?;
    let vaults = Vaults::new(&*state.records, &caller.tenant);
    vaults.get_active(vault).await?;
    let create = CredentialCreate::from_json(&body, now())?;
    let credentials = Credentials::open(&state, &caller.tenant, vault).await?;
    let credential = credentials.create(create).await?;
    if let Err(error) = vaults.get_active(vault).await {
        // The vault was archived or deleted while the credential was created.
        credentials.delete(credential.id).await?;
        return Err(error);
    }
    Ok(Json(credential))
}

async fn list(
    State(state): Shared,
    caller: Caller,
    Path(vault): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<Credential>>, ApiError> {
    let query = VaultListQuery::from_query(&query)?;
    let vault: VaultId = vault.parse()?;
    Vaults::new(&*state.records, &caller.tenant).get(vault).await?;
    Credentials::open(&state, &caller.tenant, vault).await?.list(&query).await.map(Json)
}

async fn retrieve(
    State(state): Shared,
    caller: Caller,
    Path((vault, id)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<Credential>, ApiError> {
    Credentials::open(&state, &caller.tenant, vault.parse()?).await?.get(id.parse()?).await.map(Json)
}

async fn update(
    State(state): Shared,
    caller: Caller,
    Path((vault, id)): Path<(String, String)>,
    _: NoQuery,
    Body(body): Body,
) -> Result<Json<Credential>, ApiError> {
    let (vault, id): (VaultId, CredentialId) = (vault.parse()?, id.parse()?);
    let update = CredentialUpdate::from_json(&body, now())?;
    Credentials::open(&state, &caller.tenant, vault).await?.update(id, &update).await.map(Json)
}

async fn delete(
    State(state): Shared,
    caller: Caller,
    Path((vault, id)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<Deleted>, ApiError> {
    let (vault, id): (VaultId, CredentialId) = (vault.parse()?, id.parse()?);
    Credentials::open(&state, &caller.tenant, vault).await?.delete(id).await?;
    Ok(Json(Deleted::new(DeletedKind::VaultCredential, id)))
}

async fn archive(
    State(state): Shared,
    caller: Caller,
    Path((vault, id)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<Credential>, ApiError> {
    let (vault, id): (VaultId, CredentialId) = (vault.parse()?, id.parse()?);
    Credentials::open(&state, &caller.tenant, vault).await?.archive(id).await.map(Json)
}

/// Connects to the server of a credential in the same way as a session.
async fn validate(
    State(state): Shared,
    caller: Caller,
    Path((vault, id)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<CredentialValidation>, ApiError> {
    let (vault, id): (VaultId, CredentialId) = (vault.parse()?, id.parse()?);
    let credential = Credentials::open(&state, &caller.tenant, vault).await?.get(id).await?;
    if credential.archived_at.is_some() {
        return Err(ApiError::invalid(format!(
            "the credential `{id}` is archived and has no secrets any more"
        )));
    }
    let has_refresh_token = matches!(&credential.auth, CredentialAuth::McpOauth { refresh: Some(_), .. });
    let url = credential.auth.mcp_server_url();
    let checked = state.runtime.check_credential(&caller.tenant, &vault.to_string(), url).await?;
    let CredentialCheck { failed_method, is_refused, renewal } = checked;
    let refresh = match renewal {
        RenewalOutcome::NotTried => None,
        RenewalOutcome::Renewed => Some(RefreshStatus::Succeeded),
        RenewalOutcome::Refused if has_refresh_token => Some(RefreshStatus::Failed),
        RenewalOutcome::Refused => Some(RefreshStatus::NoRefreshToken),
        RenewalOutcome::Unreachable => Some(RefreshStatus::ConnectError),
    };
    Ok(Json(CredentialValidation {
        credential_id: id,
        has_refresh_token,
        status: match (&failed_method, is_refused) {
            (None, _) => ValidationStatus::Valid,
            (Some(_), true) => ValidationStatus::Invalid,
            (Some(_), false) => ValidationStatus::Unknown,
        },
        mcp_probe: failed_method.map(|method| McpProbe { http_response: None, method: method.to_owned() }),
        refresh: refresh.map(|status| RefreshProbe { http_response: None, status }),
        validated_at: now(),
        vault_id: vault,
    }))
}
