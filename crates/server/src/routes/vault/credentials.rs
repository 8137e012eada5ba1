//! Routes of a vault's credentials: `/v1/vaults/{vault_id}/credentials`.

use axum::Json;
use conjure_api::{
    ArchivableListQuery, Credential, CredentialAuth, CredentialCreate, CredentialId, CredentialUpdate,
    CredentialValidation, Deleted, DeletedKind, McpProbe, Page, RefreshProbe, RefreshStatus,
    ValidationStatus, VaultId,
};
use conjure_runtime::{CredentialCheck, RenewalOutcome};

use crate::access::Scope;
use crate::http::{ApiError, Body, NoQuery, Path, RawQuery};
use crate::objects::now;
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;

const ALL: &str = "/v1/vaults/{vault_id}/credentials";
const ONE: &str = "/v1/vaults/{vault_id}/credentials/{credential_id}";

/// The ids in the path of a credential.
type CredentialPath = Path<(VaultId, CredentialId)>;

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
    call: Call,
    Path(vault): Path<VaultId>,
    _: NoQuery,
    Body(body): Body,
) -> JsonResult<Credential> {
    let vaults = call.vaults();
    vaults.get_active(vault).await?;
    let create = CredentialCreate::from_json(&body, now())?;
    let credentials = call.credentials(vault).await?;
    let credential = credentials.create(create).await?;
    if let Err(error) = vaults.get_active(vault).await {
        // The vault was archived or deleted while the credential was created.
        credentials.delete(credential.id).await?;
        return Err(error);
    }
    Ok(Json(credential))
}

async fn list(
    call: Call,
    Path(vault): Path<VaultId>,
    RawQuery(query): RawQuery,
) -> JsonResult<Page<Credential>> {
    let query = ArchivableListQuery::from_query(&query)?;
    call.vaults().get(vault).await?;
    call.credentials(vault).await?.list(&query).await.map(Json)
}

async fn retrieve(call: Call, Path((vault, id)): CredentialPath, _: NoQuery) -> JsonResult<Credential> {
    call.credentials(vault).await?.get(id).await.map(Json)
}

async fn update(
    call: Call,
    Path((vault, id)): CredentialPath,
    _: NoQuery,
    Body(body): Body,
) -> JsonResult<Credential> {
    let update = CredentialUpdate::from_json(&body, now())?;
    call.credentials(vault).await?.update(id, &update).await.map(Json)
}

async fn delete(call: Call, Path((vault, id)): CredentialPath, _: NoQuery) -> JsonResult<Deleted> {
    call.credentials(vault).await?.delete(id).await?;
    Ok(Json(Deleted::new(DeletedKind::VaultCredential, id)))
}

async fn archive(call: Call, Path((vault, id)): CredentialPath, _: NoQuery) -> JsonResult<Credential> {
    call.credentials(vault).await?.archive(id).await.map(Json)
}

/// Connects to the server of a credential in the same way as a session.
async fn validate(
    call: Call,
    Path((vault, id)): CredentialPath,
    _: NoQuery,
) -> JsonResult<CredentialValidation> {
    let credential = call.credentials(vault).await?.get(id).await?;
    if credential.archived_at.is_some() {
        return Err(ApiError::invalid(format!(
            "the credential `{id}` is archived and has no secrets any more"
        )));
    }
    let has_refresh_token = matches!(&credential.auth, CredentialAuth::McpOauth { refresh: Some(_), .. });
    let url = credential.auth.mcp_server_url();
    let checked = call.state.runtime.check_credential(call.tenant(), &vault.to_string(), url).await?;
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
