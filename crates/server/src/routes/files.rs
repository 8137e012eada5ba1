//! Routes of files: `/v1/files`. File contents are streamed in both directions, and never held in memory as a whole.

use std::time::Duration;

use axum::Json;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use conjure_api::{Deleted, DeletedKind, FileId, FileListQuery, FileMetadata, FilePage, Time};
use conjure_artifact::{HEAD_BYTES, content_type_of};
use conjure_base::Timestamp;

use crate::access::Scope;
use crate::http::download;
use crate::http::{ApiError, Form, NoQuery, Part, Path, RawQuery};
use crate::objects::now;
use crate::routes::call::{Call, JsonResult};
use crate::routes::route::Route;
use crate::sessions::collect_outputs;

/// The maximum size of a file in bytes, as in the vendor's API.
const MAX_FILE: u64 = 500 << 20;

/// The allowance for the other parts of a form, in bytes.
const FORM_OVERHEAD: usize = 1 << 20;

/// The maximum length of a file's name, in characters.
const MAX_NAME: usize = 255;

pub(crate) fn routes() -> Vec<Route> {
    let limit = usize::try_from(MAX_FILE).unwrap_or(usize::MAX).saturating_add(FORM_OVERHEAD);
    vec![
        Route::post(Scope::Run, "/v1/files", upload)
            .map(|route| route.layer(DefaultBodyLimit::max(limit)))
            .without_idempotency_key(),
        Route::get("/v1/files", list),
        Route::get("/v1/files/{file_id}", retrieve),
        Route::get("/v1/files/{file_id}/content", content),
        Route::delete(Scope::Run, "/v1/files/{file_id}", delete),
    ]
}

/// A file whose bytes are stored.
struct Uploaded {
    name: String,
    mime_type: String,
    size: u64,
}

async fn upload(call: Call, _: NoQuery, mut form: Form) -> JsonResult<FileMetadata> {
    let id = FileId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let result = receive(&call, id, &mut form).await;
    if result.is_err() {
        // No client knows the id, so leftover bytes do no harm.
        let _ = call.state.runtime.remove_file(call.tenant(), &id.to_string()).await;
    }
    result.map(Json)
}

async fn receive(call: &Call, id: FileId, form: &mut Form) -> Result<FileMetadata, ApiError> {
    let mut uploaded = None;
    let mut lifetime = None;
    while let Some(part) = form.next().await? {
        match part.name.as_str() {
            "file" if uploaded.is_some() => {
                return Err(ApiError::invalid("file: the field is there twice; upload one file at a time"));
            }
            "file" => uploaded = Some(store(call, id, part).await?),
            "expires_in_seconds" => lifetime = Some(read_lifetime(&part.text().await?)?),
            _ => return Err(part.unknown("`file` or `expires_in_seconds`")),
        }
    }
    let uploaded = uploaded.ok_or_else(|| ApiError::invalid("file: the field is missing; it is required"))?;
    let created_at = now();
    let file = FileMetadata {
        id,
        created_at,
        downloadable: Some(true),
        expires_at: lifetime.map(|lifetime| later(created_at, lifetime)),
        filename: uploaded.name,
        mime_type: uploaded.mime_type,
        scope: None,
        size_bytes: uploaded.size,
    };
    call.files().insert(&file).await
}

/// Stores the bytes of a part as they arrive.
async fn store(call: &Call, id: FileId, mut part: Part<'_>) -> Result<Uploaded, ApiError> {
    let name = file_name(part.file_name.as_deref().unwrap_or_default())?;
    let declared = part.content_type.take().filter(|kind| kind != "application/octet-stream");
    let mut head = Vec::new();
    let mut upload = call.state.runtime.upload_file(call.tenant(), id.to_string(), MAX_FILE).await?;
    while let Some(chunk) = part.chunk().await? {
        if upload.size() + chunk.len() as u64 > MAX_FILE {
            return Err(ApiError::too_large(format!("file: the file has more than {MAX_FILE} bytes")));
        }
        let missing = HEAD_BYTES.saturating_sub(head.len());
        head.extend(chunk.iter().take(missing));
        upload = upload.push(&chunk).await?;
    }
    let stored = upload.finish().await?;
    let mime_type = match declared {
        Some(declared) if is_mime_type(&declared) => declared,
        _ => content_type_of(&name, &head),
    };
    let name = if name.is_empty() { format!("unnamed{}", extension(&mime_type)) } else { name };
    Ok(Uploaded { name, mime_type, size: stored.size })
}

/// The last component of a file's name. It is empty if there is none.
fn file_name(text: &str) -> Result<String, ApiError> {
    let name = text.rsplit(['/', '\\']).next().unwrap_or_default();
    if name.chars().count() > MAX_NAME || name.chars().any(char::is_control) || matches!(name, "." | "..") {
        return Err(ApiError::invalid(format!(
            "file: `{}` is not the name of a file; use at most {MAX_NAME} characters without control characters",
            name.escape_debug()
        )));
    }
    Ok(name.to_owned())
}

/// Whether this is a media type with a subtype that can be sent in a header.
fn is_mime_type(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty()
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    text.len() <= MAX_NAME
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// The file extension for this media type, for files without a name.
fn extension(mime_type: &str) -> &'static str {
    match mime_type {
        "text/plain" => ".txt",
        "text/csv" => ".csv",
        "text/html" => ".html",
        "application/json" => ".json",
        "application/pdf" => ".pdf",
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        _ => "",
    }
}

/// Parses how long a file is kept: an hour to ninety days.
fn read_lifetime(text: &str) -> Result<Duration, ApiError> {
    let seconds = text.parse().ok().filter(|seconds| (3_600..=7_776_000).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let text = text.escape_debug();
        ApiError::invalid(format!(
            "expires_in_seconds: `{text}` is not allowed; give an integer of 3600 to 7776000"
        ))
    })
}

fn later(time: Time, wait: Duration) -> Time {
    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(time.0.millis().saturating_add(wait)).into()
}

async fn list(call: Call, RawQuery(query): RawQuery) -> JsonResult<FilePage<FileMetadata>> {
    let query = FileListQuery::from_query(&query)?;
    if let Some(session) = &query.scope_id {
        collect_outputs(&call.state, call.tenant(), session).await?;
    }
    call.files().list(&query).await.map(Json)
}

async fn retrieve(call: Call, Path(id): Path<FileId>, _: NoQuery) -> JsonResult<FileMetadata> {
    call.files().get(id).await.map(Json)
}

async fn content(call: Call, Path(id): Path<FileId>, _: NoQuery) -> Result<Response, ApiError> {
    let file = call.files().available(id).await?;
    let bytes = call.state.runtime.open_file(call.tenant(), &id.to_string()).await?;
    let bytes = bytes.ok_or_else(|| ApiError::internal(format!("the bytes of the file {id} are gone")))?;
    download(bytes, file.size_bytes, &file.mime_type, &file.filename)
}

async fn delete(call: Call, Path(id): Path<FileId>, _: NoQuery) -> JsonResult<Deleted> {
    call.files().delete(id).await?;
    call.state.runtime.remove_file(call.tenant(), &id.to_string()).await?;
    Ok(Json(Deleted::new(DeletedKind::File, id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_component_of_a_name_counts() {
        for (text, name) in
            [("a.csv", "a.csv"), ("../../etc/passwd", "passwd"), ("C:\\x\\b.txt", "b.txt"), ("", "")]
        {
            assert_eq!(file_name(text).unwrap(), name);
        }
        for text in ["..", "a/..", "a\nb", "\0", &"x".repeat(256)] {
            assert!(file_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_kind_that_breaks_a_header_is_not_kept() {
        assert!(is_mime_type("text/csv; charset=utf-8") && is_mime_type("image/svg+xml"));
        for text in ["", "text", "text/", "text/csv\r\nx: y", "text/ä", &format!("text/{}", "x".repeat(300))]
        {
            assert!(!is_mime_type(text), "{text}");
        }
    }
}
