//! Routes of skills and their versions: `/v1/skills`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use conjure_api::{
    Deleted, DeletedKind, Page, PageQuery, Skill, SkillId, SkillListQuery, SkillVersion, SkillVersionId,
};
use conjure_base::TenantId;

use crate::access::{Caller, Scope};
use crate::http::download;
use crate::http::{ApiError, Form, NoQuery, Path, RawQuery};
use crate::objects::{SkillPackage, Skills, UploadedFile, now, package_skill};
use crate::routes::route::Route;
use crate::state::ServerState;

type Shared = State<Arc<ServerState>>;

/// The maximum total size of a skill's files in bytes, as in the vendor's API.
const MAX_BYTES: usize = 30_000_000;

/// The allowance for the other parts of a form, in bytes.
const FORM_OVERHEAD: usize = 4 << 20;

const MAX_FILES: usize = 10_000;
const MAX_DISPLAY_NAME: usize = 255;

pub(crate) fn routes() -> Vec<Route> {
    let limit = || DefaultBodyLimit::max(MAX_BYTES + FORM_OVERHEAD);
    let version = "/v1/skills/{skill_id}/versions/{version}";
    vec![
        Route::post(Scope::Admin, "/v1/skills", create)
            .map(|route| route.layer(limit()))
            .without_idempotency_key(),
        Route::get("/v1/skills", list),
        Route::get("/v1/skills/{skill_id}", retrieve),
        Route::delete(Scope::Admin, "/v1/skills/{skill_id}", delete),
        Route::post(Scope::Admin, "/v1/skills/{skill_id}/versions", create_version)
            .map(|route| route.layer(limit()))
            .without_idempotency_key(),
        Route::get("/v1/skills/{skill_id}/versions", list_versions),
        Route::get(version, retrieve_version),
        Route::delete(Scope::Admin, version, delete_version),
        Route::get("/v1/skills/{skill_id}/versions/{version}/content", content),
    ]
}

/// The fields of an upload form.
struct SkillForm {
    files: Vec<UploadedFile>,
    display_name: Option<String>,
}

async fn read_form(mut form: Form, known: &str) -> Result<SkillForm, ApiError> {
    let mut read = SkillForm { files: Vec::new(), display_name: None };
    let mut left = MAX_BYTES;
    while let Some(part) = form.next().await? {
        match part.name.as_str() {
            "files" => {
                let path = part.file_name.clone().unwrap_or_default();
                let bytes = part.bytes(left).await?;
                left -= bytes.len();
                read.files.push(UploadedFile { path, bytes });
                if read.files.len() > MAX_FILES {
                    return Err(ApiError::invalid(format!(
                        "files: more than {MAX_FILES} files are too many"
                    )));
                }
            }
            "display_name" if known.contains("display_name") => {
                let text = part.text().await?;
                if text.chars().count() > MAX_DISPLAY_NAME || text.chars().any(char::is_control) {
                    return Err(ApiError::invalid(format!(
                        "display_name: the name must be one line of at most {MAX_DISPLAY_NAME} characters"
                    )));
                }
                read.display_name = Some(text).filter(|text| !text.trim().is_empty());
            }
            _ => return Err(part.unknown(known)),
        }
    }
    Ok(read)
}

/// Stores the package of a new version.
async fn store(
    state: &ServerState,
    tenant: &TenantId,
    skill: SkillId,
    files: Vec<UploadedFile>,
) -> Result<SkillVersion, ApiError> {
    let packing = tokio::task::spawn_blocking(move || package_skill(files)).await;
    let packed =
        packing.map_err(|error| ApiError::internal(format!("the packing of a skill failed: {error}")))?;
    let SkillPackage { name, description, bytes } = packed.map_err(ApiError::invalid)?;
    let id = SkillVersionId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let upload = state.runtime.upload_file(tenant, id.to_string(), bytes.len() as u64).await?;
    upload.push(&bytes).await?.finish().await?;
    Ok(SkillVersion { id, created_at: now(), description, name, skill_id: skill })
}

async fn create(
    State(state): Shared,
    caller: Caller,
    _: NoQuery,
    form: Form,
) -> Result<Json<Skill>, ApiError> {
    let SkillForm { files, display_name } = read_form(form, "`files` or `display_name`").await?;
    let id = SkillId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let version = store(&state, &caller.tenant, id, files).await?;
    let display_name = display_name.unwrap_or_else(|| version.name.clone());
    Skills::new(&*state.records, &caller.tenant).create(display_name, &version).await.map(Json)
}

async fn create_version(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
    form: Form,
) -> Result<Json<SkillVersion>, ApiError> {
    let id: SkillId = id.parse()?;
    let skills = Skills::new(&*state.records, &caller.tenant);
    skills.get(id).await?;
    let SkillForm { files, .. } = read_form(form, "`files`").await?;
    let version = store(&state, &caller.tenant, id, files).await?;
    let added = skills.add_version(&version).await;
    if added.is_err() {
        // No client knows the version, so leftover bytes do no harm.
        let _ = state.runtime.remove_file(&caller.tenant, &version.id.to_string()).await;
    }
    added.map(Json)
}

async fn list(
    State(state): Shared,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<Skill>>, ApiError> {
    let query = SkillListQuery::from_query(&query)?;
    Skills::new(&*state.records, &caller.tenant).list(&query).await.map(Json)
}

async fn retrieve(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Skill>, ApiError> {
    Skills::new(&*state.records, &caller.tenant).get(id.parse()?).await.map(Json)
}

async fn delete(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<Deleted>, ApiError> {
    let id: SkillId = id.parse()?;
    for version in Skills::new(&*state.records, &caller.tenant).delete(id).await? {
        state.runtime.remove_file(&caller.tenant, &version.to_string()).await?;
    }
    Ok(Json(Deleted::new(DeletedKind::Skill, id)))
}

async fn list_versions(
    State(state): Shared,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<SkillVersion>>, ApiError> {
    let page = PageQuery::skill_versions(&query)?;
    Skills::new(&*state.records, &caller.tenant).versions(id.parse()?, &page).await.map(Json)
}

async fn retrieve_version(
    State(state): Shared,
    caller: Caller,
    Path((id, version)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<SkillVersion>, ApiError> {
    Skills::new(&*state.records, &caller.tenant).version(id.parse()?, &version).await.map(Json)
}

async fn delete_version(
    State(state): Shared,
    caller: Caller,
    Path((id, version)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Json<Deleted>, ApiError> {
    let (id, version): (SkillId, SkillVersionId) = (id.parse()?, version.parse()?);
    Skills::new(&*state.records, &caller.tenant).delete_version(id, version).await?;
    state.runtime.remove_file(&caller.tenant, &version.to_string()).await?;
    Ok(Json(Deleted::new(DeletedKind::SkillVersion, version)))
}

async fn content(
    State(state): Shared,
    caller: Caller,
    Path((id, version)): Path<(String, String)>,
    _: NoQuery,
) -> Result<Response, ApiError> {
    let version = Skills::new(&*state.records, &caller.tenant).version(id.parse()?, &version).await?;
    let package = state.runtime.open_file(&caller.tenant, &version.id.to_string()).await?;
    let package =
        package.ok_or_else(|| ApiError::internal(format!("the package of {} is gone", version.id)))?;
    let size = package.metadata().map_err(|error| ApiError::internal(error.to_string()))?.len();
    download(package, size, "application/zip", &format!("{}.zip", version.name))
}
