//! Access to the files that a session produced.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use conjure_base::{Timestamp, TurnId};
use conjure_conversation::{ArtifactContent, Completeness, FileSource, Message, SessionFile};
use conjure_fs::run_blocking;
use conjure_store::{FileMode, Store, StoreError};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};

use crate::error::ArtifactError;

/// A stream of chunks.
pub type ContentStream = Pin<Box<dyn Stream<Item = Result<Bytes, OutputError>> + Send>>;

/// Access to a session's produced files: in its workspace, or at the model's service.
pub trait OutputStore: Send + Sync + std::fmt::Debug {
    /// The source that this store serves.
    fn source(&self) -> FileSource;

    /// Records that a turn begins, so that its outputs can be distinguished exactly from older files. The call is optional: after a
    /// crash, only [`FinishedTurnInfo::began`] is known. It does not block.
    fn record_turn_start(&self, turn: TurnId) {
        let _ = turn;
    }

    /// Returns the files that a turn created or changed. Called once, after the turn.
    ///
    /// # Errors
    /// When they cannot be determined. The call may be repeated.
    fn turn_outputs<'a>(
        &'a self,
        turn: &'a FinishedTurnInfo,
    ) -> BoxFuture<'a, Result<TurnOutputs, OutputError>>;

    /// Opens a produced file in its current state.
    ///
    /// # Errors
    /// `NotFound` when it was removed.
    fn open<'a>(&'a self, file: &'a SessionFile) -> BoxFuture<'a, Result<OutputContent, OutputError>>;
}

/// What an [`OutputStore`] needs to know about a finished turn.
#[derive(Debug, Clone)]
pub struct FinishedTurnInfo {
    /// The turn.
    pub turn: TurnId,
    /// When it began, by the clock of the event log.
    pub began: Timestamp,
    /// The session's history, the turn's messages last. Messages with results of the service's tools that a summary replaced during this
    /// turn come first.
    pub messages: Vec<Arc<Message>>,
    /// The session's files from earlier turns.
    pub known: Vec<SessionFile>,
}

/// The files that a turn created or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnOutputs {
    /// The files.
    pub files: Vec<SessionFile>,
    /// Whether the list is complete.
    pub completeness: Completeness,
}

/// An open produced file.
pub struct OutputContent {
    /// The file name, without directories.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// The size in bytes, if known.
    pub size: Option<u64>,
    /// The bytes. A broken stream ends with an error, never like a complete one.
    pub stream: ContentStream,
}

impl OutputContent {
    /// Copies the file into a store, for example to register it in another session ([`crate::RegistrationSource::stored`]). Memory: one
    /// chunk at a time. A dropped future leaves nothing behind.
    ///
    /// # Errors
    /// `TooLarge` beyond `limit` bytes; `FileNotFound`, `NotAFile` and `Unreadable` when the file changed or the stream
    /// broke off; `Changed` when the number of bytes differs from `size`; `Store`.
    pub async fn store(self, store: &Store, limit: u64) -> Result<ArtifactContent, ArtifactError> {
        let Self { name, size, mut stream, .. } = self;
        let failed = |error| match error {
            StoreError::LimitExceeded { limit, .. } => {
                ArtifactError::TooLarge { what: format!("the file `{name}`"), limit }
            }
            other => other.into(),
        };
        let store = store.clone();
        let mut insertion =
            run_blocking(move || store.writer(FileMode::Plain, limit)).await?.map_err(failed)?;
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            // Stop as soon as there are more bytes than announced.
            if size.is_some_and(|size| insertion.size().saturating_add(piece.len() as u64) > size) {
                return Err(ArtifactError::Changed { name });
            }
            let pushed = run_blocking(move || insertion.push(&piece).map(|()| insertion)).await?;
            insertion = pushed.map_err(failed)?;
        }
        if size.is_some_and(|size| size != insertion.size()) {
            return Err(ArtifactError::Changed { name });
        }
        let inserted = run_blocking(move || insertion.finish()).await?.map_err(failed)?;
        Ok(ArtifactContent { digest: inserted.digest, size: inserted.size })
    }
}

impl std::fmt::Debug for OutputContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputContent")
            .field("name", &self.name)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Why a produced file is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It was removed.
    #[error("the file `{name}` is not there any more")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// Its path no longer leads to a regular file.
    #[error("`{name}` is not a regular file any more")]
    NotAFile {
        /// Its name.
        name: String,
    },
    /// It could not be read.
    #[error("`{name}` could not be read: {reason}")]
    Failed {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// For a produced file that becomes an artifact.
impl From<OutputError> for ArtifactError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::NotFound { name } => Self::FileNotFound { name },
            OutputError::NotAFile { name } => Self::NotAFile { name },
            OutputError::Failed { name, reason } => Self::Unreadable { what: name, reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_base::Digest;
    use futures_util::stream;

    use super::*;
    use crate::error::ArtifactErrorKind as Kind;

    fn content(size: Option<u64>, pieces: Vec<Result<Bytes, OutputError>>) -> OutputContent {
        let stream = Box::pin(stream::iter(pieces));
        OutputContent { name: "report".to_owned(), content_type: "text/plain".to_owned(), size, stream }
    }

    fn piece(text: &'static str) -> Result<Bytes, OutputError> {
        Ok(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn content_is_stored_completely_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        for size in [None, Some(5)] {
            let stored = content(size, vec![piece("hel"), piece("lo")]).store(&store, 5).await.unwrap();
            assert_eq!(stored, ArtifactContent { digest: Digest::of_bytes(b"hello"), size: 5 });
        }
        let failed_chunk = OutputError::Failed { name: "report".to_owned(), reason: "it was cut".to_owned() };
        let not_found = OutputError::NotFound { name: "report".to_owned() };
        for (content, kind) in [
            (content(None, vec![piece("hel"), piece("lo!")]), Kind::TooLarge),
            (content(Some(5), vec![piece("hel")]), Kind::Changed),
            (content(Some(3), vec![piece("hell")]), Kind::Changed),
            (content(None, vec![piece("hel"), Err(failed_chunk)]), Kind::Unreadable),
            (content(None, vec![Err(not_found)]), Kind::FileNotFound),
        ] {
            let error = content.store(&store, 5).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("`report`"), "{error}");
        }
        let usage = store.usage().unwrap();
        assert_eq!((usage.contents, usage.temporary), (1, 0));
    }
}
