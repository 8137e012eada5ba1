//! Routes of skills and their versions: `/v1/skills`.

use axum::Json;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use conjure_api::{
    Deleted, DeletedKind, Page, PageQuery, Skill, SkillId, SkillListQuery, SkillVersion, SkillVersionId,
};

use crate::access::Scope;
use crate::http::download;
use crate::http::{ApiError, Form, NoQuery, Path, RawQuery};
use crate::objects::{SkillPackage, UploadedFile, now, package_skill};
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;

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
async fn store(call: &Call, skill: SkillId, files: Vec<UploadedFile>) -> Result<SkillVersion, ApiError> {
    let packing = tokio::task::spawn_blocking(move || package_skill(files)).await;
    let packed =
        packing.map_err(|error| ApiError::internal(format!("the packing of a skill failed: {error}")))?;
    let SkillPackage { name, description, bytes } = packed.map_err(ApiError::invalid)?;
    let id = SkillVersionId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let upload = call.state.runtime.upload_file(call.tenant(), id.to_string(), bytes.len() as u64).await?;
    upload.push(&bytes).await?.finish().await?;
    Ok(SkillVersion { id, created_at: now(), description, name, skill_id: skill })
}

async fn create(call: Call, _: NoQuery, form: Form) -> JsonResult<Skill> {
    let SkillForm { files, display_name } = read_form(form, "`files` or `display_name`").await?;
    let id = SkillId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let version = store(&call, id, files).await?;
    let display_name = display_name.unwrap_or_else(|| version.name.clone());
    call.skills().create(display_name, &version).await.map(Json)
}

async fn create_version(
    call: Call,
    Path(id): Path<SkillId>,
    _: NoQuery,
    form: Form,
) -> JsonResult<SkillVersion> {
    let skills = call.skills();
    skills.get(id).await?;
    let SkillForm { files, .. } = read_form(form, "`files`").await?;
    let version = store(&call, id, files).await?;
    let added = skills.add_version(&version).await;
    if added.is_err() {
        // No client knows the version, so leftover bytes do no harm.
        let _ = call.state.runtime.remove_file(call.tenant(), &version.id.to_string()).await;
    }
    added.map(Json)
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<Page<Skill>> {
    let query = SkillListQuery::from_query(&query)?;
    call.skills().list(&query).await.map(Json)
}

async fn retrieve(call: Call, Path(id): Path<SkillId>, _: NoQuery) -> JsonResult<Skill> {
    call.skills().get(id).await.map(Json)
}

async fn delete(call: Call, Path(id): Path<SkillId>, _: NoQuery) -> JsonResult<Deleted> {
    for version in call.skills().delete(id).await? {
        call.state.runtime.remove_file(call.tenant(), &version.to_string()).await?;
    }
    Ok(Json(Deleted::new(DeletedKind::Skill, id)))
}

async fn list_versions(
    call: Call,
    Path(id): Path<SkillId>,
    RawQuery(query): RawQuery,
) -> JsonResult<Page<SkillVersion>> {
    let page = PageQuery::skill_versions(&query)?;
    call.skills().versions(id, &page).await.map(Json)
}

async fn retrieve_version(
    call: Call,
    Path((id, version)): Path<(SkillId, String)>,
    _: NoQuery,
) -> JsonResult<SkillVersion> {
    call.skills().version(id, &version).await.map(Json)
}

async fn delete_version(
    call: Call,
    Path((id, version)): Path<(SkillId, SkillVersionId)>,
    _: NoQuery,
) -> JsonResult<Deleted> {
    call.skills().delete_version(id, version).await?;
    call.state.runtime.remove_file(call.tenant(), &version.to_string()).await?;
    Ok(Json(Deleted::new(DeletedKind::SkillVersion, version)))
}

async fn content(
    call: Call,
    Path((id, version)): Path<(SkillId, String)>,
    _: NoQuery,
) -> Result<Response, ApiError> {
    let version = call.skills().version(id, &version).await?;
    let package = call.state.runtime.open_file(call.tenant(), &version.id.to_string()).await?;
    let package =
        package.ok_or_else(|| ApiError::internal(format!("the package of {} is gone", version.id)))?;
    let size = package.metadata().map_err(|error| ApiError::internal(error.to_string()))?.len();
    download(package, size, "application/zip", &format!("{}.zip", version.name))
}
