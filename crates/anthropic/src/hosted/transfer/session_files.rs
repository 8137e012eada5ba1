//! A session's files at the service: it lists produced files, uploads artifacts, and deletes both.
//!
//! These types implement the ports of `conjure_artifact`. They keep no state, because the session's event log says which files there are.

use std::collections::HashSet;
use std::fs::File;

use conjure_artifact::{
    ArtifactError, ArtifactUpload, ContentStream, DeleteError, DeleteOutcome, FinishedTurnInfo,
    OutputContent, OutputError, OutputStore, Retryable, ServiceAccount, ServiceFileDeletion, TurnOutputs,
};
use conjure_base::TurnId;
use conjure_conversation::{Artifact, Block, Completeness, FileChange, FileSource, Role, SessionFile};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::hosted::sync::IndexKey;
use crate::hosted::transfer::file_ids::{produced_files, uploaded_file};
use crate::hosted::{FileId, Files, HostedError, HostedErrorKind, container_upload};

/// The number of metadata requests that run at a time.
const CONCURRENCY: usize = 4;
/// The maximum number of new files in one turn.
const MAX_FILES: usize = 1_000;

/// Reads the files that sessions produced, under one key.
///
/// It opens any file of the key. The caller must check that the file is in the session's list.
#[derive(Debug, Clone)]
pub struct HostedOutputs(Files);

impl HostedOutputs {
    /// Creates it with this client.
    #[must_use]
    pub const fn new(files: Files) -> Self {
        Self(files)
    }

    /// Fetches the metadata of a new file. If the file was deleted meanwhile, its id serves as its name.
    async fn file_metadata(&self, id: FileId, turn: TurnId) -> Result<SessionFile, OutputError> {
        let file = SessionFile {
            source: FileSource::Hosted,
            id: id.as_str().to_owned(),
            name: id.as_str().to_owned(),
            size: None,
            content_type: "application/octet-stream".to_owned(),
            digest: None,
            change: FileChange::Created,
            turn,
        };
        match self.0.metadata(&id).await {
            Ok(record) => Ok(SessionFile {
                name: record.safe_name(),
                size: Some(record.size),
                content_type: if record.media_type.is_empty() {
                    file.content_type
                } else {
                    record.media_type
                },
                ..file
            }),
            Err(error) if error.kind() == HostedErrorKind::NotFound => Ok(file),
            Err(error) => Err(output_error(id.as_str(), &error)),
        }
    }
}

impl OutputStore for HostedOutputs {
    fn source(&self) -> FileSource {
        FileSource::Hosted
    }

    fn turn_outputs<'a>(
        &'a self,
        turn: &'a FinishedTurnInfo,
    ) -> BoxFuture<'a, Result<TurnOutputs, OutputError>> {
        Box::pin(async move {
            let of_service = |file: &&SessionFile| file.source == FileSource::Hosted;
            let mut seen: HashSet<&str> =
                turn.known.iter().filter(of_service).map(|file| file.id.as_str()).collect();
            let said = turn.messages.iter().filter(|message| message.role == Role::Assistant);
            let found: Vec<FileId> = said.flat_map(|message| produced_files(&message.content)).collect();
            let mut new: Vec<FileId> = found.iter().filter(|id| seen.insert(id.as_str())).cloned().collect();
            let completeness =
                if new.len() > MAX_FILES { Completeness::Truncated } else { Completeness::Complete };
            new.truncate(MAX_FILES);
            let files = stream::iter(new).map(|id| self.file_metadata(id, turn.turn)).buffered(CONCURRENCY);
            Ok(TurnOutputs { files: files.try_collect().await?, completeness })
        })
    }

    fn open<'a>(&'a self, file: &'a SessionFile) -> BoxFuture<'a, Result<OutputContent, OutputError>> {
        Box::pin(async move {
            let download = self.0.download(&FileId::new(file.id.as_str())).await;
            let download = download.map_err(|error| output_error(&file.name, &error))?;
            let name = download.record().map_or_else(|| file.name.clone(), |record| record.safe_name());
            let content_type = download.media_type().unwrap_or(&file.content_type).to_owned();
            let (size, of) = (download.size(), file.name.clone());
            let stream: ContentStream =
                Box::pin(download.into_stream().map_err(move |error| output_error(&of, &error)));
            Ok(OutputContent { name, content_type, size, stream })
        })
    }
}

fn output_error(name: &str, error: &HostedError) -> OutputError {
    let name = name.to_owned();
    match error.kind() {
        HostedErrorKind::NotFound => OutputError::NotFound { name },
        _ => OutputError::Failed { name, reason: error.to_string() },
    }
}

/// Uploads the artifacts of sessions, under one key.
#[derive(Debug, Clone)]
pub struct HostedUploads(Files);

impl HostedUploads {
    /// Creates it with this client.
    #[must_use]
    pub const fn new(files: Files) -> Self {
        Self(files)
    }
}

impl ArtifactUpload for HostedUploads {
    fn upload<'a>(
        &'a self,
        artifact: &'a Artifact,
        bytes: File,
    ) -> BoxFuture<'a, Result<Block, ArtifactError>> {
        Box::pin(async move {
            let name = || artifact.name.clone();
            let uploaded = self.0.upload(artifact.name.as_str(), bytes, artifact.content_type.as_str());
            let record = uploaded.await.map_err(|error| match error.kind() {
                HostedErrorKind::OverLimit => ArtifactError::TooLarge {
                    what: format!("the artifact `{}`", artifact.name),
                    limit: self.0.limits().file_bytes,
                },
                _ => {
                    // If the service already has the file, a second upload only costs an unused file.
                    let may_help = error.is_retryable() || error.may_have_happened();
                    let retry = if may_help { Retryable::Yes } else { Retryable::No };
                    ArtifactError::UploadFailed { name: name(), reason: error.to_string(), retry }
                }
            })?;
            Block::from_json(container_upload(&record.id).to_string()).map_err(|error| {
                let reason = format!("the service's id of the file cannot be sent: {error}");
                ArtifactError::UploadFailed { name: name(), reason, retry: Retryable::No }
            })
        })
    }
}

/// Deletes the files of sessions, under one key.
///
/// It deletes any file of the key. The caller must check that the file belongs to the session.
#[derive(Debug, Clone)]
pub struct HostedFileDeletion(Files);

impl HostedFileDeletion {
    /// Creates it with this client.
    #[must_use]
    pub const fn new(files: Files) -> Self {
        Self(files)
    }
}

impl ServiceFileDeletion for HostedFileDeletion {
    fn account(&self) -> ServiceAccount {
        let IndexKey { service, key } = self.0.account();
        ServiceAccount { service, key }
    }

    fn uploaded_id(&self, block: &Block) -> Option<String> {
        uploaded_file(block).map(|id| id.as_str().to_owned())
    }

    fn produced_ids(&self, answer: &[Block]) -> Vec<String> {
        produced_files(answer).iter().map(|id| id.as_str().to_owned()).collect()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DeleteOutcome, DeleteError>> {
        Box::pin(async move {
            use HostedErrorKind as Kind;
            let Err(error) = self.0.delete(&FileId::new(id)).await else { return Ok(DeleteOutcome::Deleted) };
            let reason = error.to_string();
            Err(match error.kind() {
                Kind::NotFound => return Ok(DeleteOutcome::Absent),
                Kind::WrongKey => DeleteError::KeyRefused { reason },
                Kind::Forbidden | Kind::Refused | Kind::InvalidId => DeleteError::Refused { reason },
                Kind::RateLimited | Kind::Connection | Kind::Timeout => DeleteError::Unreachable { reason },
                Kind::Service if is_overloaded(&error) => DeleteError::Unreachable { reason },
                _ => DeleteError::Failed { reason },
            })
        })
    }
}

/// Whether the service is overloaded. Other errors concern this file only.
fn is_overloaded(error: &HostedError) -> bool {
    matches!(error.status_code(), Some(503 | 529))
}
