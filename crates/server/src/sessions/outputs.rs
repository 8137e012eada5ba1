//! Outputs: the files in a session's output directory become files of the tenant that belong to the session.
//!
//! They are collected when a client lists the files of the session. A row for each path records the file's id, size and time of
//! modification. After a crash between the two rows, one file may be listed a second time under another id.

use std::path::Path;

use conjure_api::{FileId, FileMetadata, FileScope};
use conjure_artifact::{HEAD_BYTES, content_type_of};
use conjure_base::text::classify_chars;
use conjure_base::{Digest, SessionId, TenantId};
use conjure_journal::{IndexName, NewRecord, RecordKind, RecordQuery};
use conjure_runtime::{RuntimeError, WorkspaceFile};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use crate::http::ApiError;
use crate::objects::{Files, Rows, decode, delete_all, encode, now};
use crate::state::ServerState;

/// The output directory, in the workspace.
pub(crate) const OUTPUTS_DIR: &str = ".session/outputs";

/// The maximum size of a file in bytes, as for an upload.
const MAX_FILE: u64 = 500 << 20;

/// How many bytes are read at a time.
const CHUNK: usize = 1 << 18;

static OUTPUT: RecordKind = RecordKind::from_static("output");

/// The session of an output.
const SESSION: IndexName = IndexName::from_static("session");

/// The recorded state of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OutputState {
    file: FileId,
    size: u64,
    modified_ms: u64,
}

/// Stores the new and changed outputs of a session as files. A session that does not exist has none.
///
/// # Errors
/// If the outputs cannot be read or stored.
pub(crate) async fn collect_outputs(
    state: &ServerState,
    tenant: &TenantId,
    id: &str,
) -> Result<(), ApiError> {
    let Ok(session) = id.parse::<SessionId>() else { return Ok(()) };
    let dir = Path::new(OUTPUTS_DIR);
    let found = match state.runtime.workspace_files(tenant, session, dir).await {
        Ok(found) => found,
        Err(RuntimeError::NotFound { .. } | RuntimeError::WorkspaceFile { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Only one request collects the outputs of a session at a time; two would store the same output twice.
    let _one = state.collecting_outputs.lock((tenant.clone(), session)).await;
    for output in found.into_iter().filter(|output| output.size <= MAX_FILE) {
        collect(state, tenant, session, &output).await?;
    }
    Ok(())
}

/// Deletes a session that has no row any more, and the files of its outputs.
///
/// # Errors
/// If something cannot be deleted. A repeated call deletes the rest.
pub(crate) async fn delete_without_row(
    state: &ServerState,
    tenant: &TenantId,
    session: SessionId,
) -> Result<(), ApiError> {
    let _one = state.collecting_outputs.lock((tenant.clone(), session)).await;
    let files = Files::new(&*state.records, tenant);
    while let Some(file) = files.first_of_session(session).await? {
        state.runtime.remove_file(tenant, &file.to_string()).await?;
        files.remove(file).await?;
    }
    let outputs = RecordQuery::new(tenant, OUTPUT.clone()).with_filter(SESSION, session.to_string());
    delete_all(&*state.records, outputs).await?;
    match state.runtime.delete(tenant, session).await {
        Ok(_) | Err(RuntimeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn collect(
    state: &ServerState,
    tenant: &TenantId,
    session: SessionId,
    output: &WorkspaceFile,
) -> Result<(), ApiError> {
    let Some(path) = output.path.to_str() else { return Ok(()) };
    let digest = Digest::of_bytes(format!("{session}\0{path}").as_bytes()).to_hex();
    let rows = Rows { records: &*state.records, tenant, kind: &OUTPUT };
    let record = rows.find(&digest).await?;
    let known: Option<OutputState> = record.as_ref().map(decode).transpose()?;
    let modified_ms = output.modified.millis();
    if known.as_ref().is_some_and(|known| known.size == output.size && known.modified_ms == modified_ms) {
        return Ok(());
    }
    let Some(file) = store(state, tenant, session, path, output.size).await? else { return Ok(()) };
    let content = encode(&OutputState { file: file.id, size: output.size, modified_ms })?;
    let content = content.with_index(SESSION, session.to_string());
    match record {
        Some(record) => {
            state.records.replace(&record.key, record.version, content).await?;
        }
        None => {
            state.records.insert(NewRecord::new(rows.key(&digest)?, content)).await?;
        }
    }
    if let Some(before) = known {
        // The output has changed, so the former file is no longer referenced.
        let _ = Files::new(&*state.records, tenant).delete(before.file).await;
        state.runtime.remove_file(tenant, &before.file.to_string()).await?;
    }
    Ok(())
}

/// Stores the first `size` bytes of an output as a file. `None` if the output no longer exists.
async fn store(
    state: &ServerState,
    tenant: &TenantId,
    session: SessionId,
    path: &str,
    size: u64,
) -> Result<Option<FileMetadata>, ApiError> {
    let opened =
        state.runtime.open_workspace_file(tenant, session, &Path::new(OUTPUTS_DIR).join(path)).await?;
    let Some(opened) = opened else { return Ok(None) };
    let mut source = tokio::fs::File::from_std(opened).take(size);
    let id = FileId::random().map_err(|error| ApiError::internal(error.to_string()))?;
    let mut upload = match state.runtime.upload_file(tenant, id.to_string(), MAX_FILE).await {
        // The output stays in the workspace. A later list stores it.
        Err(RuntimeError::Quota(error)) => {
            tracing::warn!(%session, %error, "an output was not stored");
            return Ok(None);
        }
        upload => upload?,
    };
    let (mut head, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        let length = source.read(&mut chunk).await.map_err(|error| ApiError::internal(error.to_string()))?;
        let Some(bytes) = chunk.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        head.extend(bytes.iter().take(HEAD_BYTES.saturating_sub(head.len())));
        upload = upload.push(bytes).await?;
    }
    let stored = upload.finish().await?;
    let file = FileMetadata {
        id,
        created_at: now(),
        downloadable: Some(true),
        expires_at: None,
        filename: shown_name(&state.runtime.redactor(tenant, session).redact(path)),
        mime_type: content_type_of(path, &head),
        scope: Some(FileScope { id: session.to_string() }),
        size_bytes: stored.size,
    };
    Files::new(&*state.records, tenant).insert(&file).await.map(Some)
}

/// The name of a file, with control and deceptive characters replaced, so that it is safe in a header and a terminal.
fn shown_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let shown = |(c, is_deceptive): (char, bool)| if c.is_control() || is_deceptive { '_' } else { c };
    let name: String = classify_chars(name).map(shown).take(255).collect();
    if matches!(name.as_str(), "" | "." | "..") { "unnamed".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_commands_is_made_harmless() {
        for (path, name) in [
            ("a/b.png", "b.png"),
            ("a\nb\u{1b}", "a_b_"),
            ("a\u{202e}gnp.\u{e0041}exe", "a_gnp._exe"),
            ("..", "unnamed"),
            ("ä.txt", "ä.txt"),
        ] {
            assert_eq!(shown_name(path), name);
        }
    }
}
