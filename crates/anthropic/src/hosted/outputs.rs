//! The files of a session that the service keeps: what its tools made in containers.
//!
//! It keeps no state: which files there are stands in the session's history, and what was found before in its record.

use std::collections::HashSet;

use conjure_artifact::{ContentStream, OutputContent, OutputError, OutputStore, Produced, TurnRecord};
use conjure_base::TurnId;
use conjure_conversation::{Completeness, FileChange, FileSource, Role, SessionFile};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::hosted::file_ids::produced_files;
use crate::hosted::{FileId, Files, HostedError, HostedErrorKind};

/// How many files are asked about at a time.
const AT_A_TIME: usize = 4;
/// The most new files of one turn that are asked about.
const MOST_FILES: usize = 1_000;

/// The produced files of sessions under one key.
///
/// Whoever names a file that the session did not produce, gets it all the same, if it is the key's: a session's list is what says which
/// are its own.
#[derive(Debug, Clone)]
pub struct HostedOutputs(Files);

impl HostedOutputs {
    /// Those that this client reaches.
    #[must_use]
    pub const fn new(files: Files) -> Self {
        Self(files)
    }

    /// What the service says of a new file. One that is gone by now is told by its id: the session did make it.
    async fn look(&self, id: FileId, turn: TurnId) -> Result<SessionFile, OutputError> {
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

    fn produced<'a>(&'a self, turn: &'a TurnRecord) -> BoxFuture<'a, Result<Produced, OutputError>> {
        Box::pin(async move {
            let of_service = |file: &&SessionFile| file.source == FileSource::Hosted;
            let mut seen: HashSet<&str> =
                turn.known.iter().filter(of_service).map(|file| file.id.as_str()).collect();
            let said = turn.messages.iter().filter(|message| message.role == Role::Assistant);
            let found: Vec<FileId> = said.flat_map(|message| produced_files(&message.content)).collect();
            let mut new: Vec<FileId> = found.iter().filter(|id| seen.insert(id.as_str())).cloned().collect();
            let completeness = if new.len() > MOST_FILES { Completeness::Cut } else { Completeness::Whole };
            new.truncate(MOST_FILES);
            let files = stream::iter(new).map(|id| self.look(id, turn.turn)).buffered(AT_A_TIME);
            Ok(Produced { files: files.try_collect().await?, completeness })
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
