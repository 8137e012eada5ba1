//! The files that a session produced, wherever they lie.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use conjure_base::{Timestamp, TurnId};
use conjure_conversation::{ArtifactContent, Completeness, FileSource, Message, SessionFile};
use conjure_store::{Store, StoreError, Variant};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};

use crate::blocking::blocking;
use crate::error::ArtifactError;

/// Bytes in pieces.
pub type ContentStream = Pin<Box<dyn Stream<Item = Result<Bytes, OutputError>> + Send>>;

/// Where the files lie that a session produced: its workspace, or a vendor's files.
pub trait OutputStore: Send + Sync + std::fmt::Debug {
    /// Whose files these are: the files of one source come from one store.
    fn source(&self) -> FileSource;

    /// A turn begins: what it produces comes after this. Whoever runs turns may tell it, so that what was there already is told
    /// apart exactly; after a crash nobody does, and [`TurnRecord::began`] is all there is. Does not block.
    fn turn_begins(&self, turn: TurnId) {
        let _ = turn;
    }

    /// The files that a turn created or changed; asked once, when the turn is over.
    ///
    /// # Errors
    /// When that cannot be known. It may be asked again.
    fn produced<'a>(&'a self, turn: &'a TurnRecord) -> BoxFuture<'a, Result<Produced, OutputError>>;

    /// Opens one of its files, as it is now.
    ///
    /// # Errors
    /// `NotFound` when it is gone.
    fn open<'a>(&'a self, file: &'a SessionFile) -> BoxFuture<'a, Result<OutputContent, OutputError>>;
}

/// A turn that is over.
#[derive(Debug, Clone)]
pub struct TurnRecord {
    /// Which turn.
    pub turn: TurnId,
    /// When it began, by the clock of whoever recorded it.
    pub began: Timestamp,
    /// The session's history, the turn's messages last. In front of it stand those that a summary took the place of in this turn, and in
    /// which tools of the model's service said something.
    pub messages: Vec<Arc<Message>>,
    /// The files of the session that are known from turns before.
    pub known: Vec<SessionFile>,
}

/// What a turn created or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Produced {
    /// Which files.
    pub files: Vec<SessionFile>,
    /// Whether these are all.
    pub completeness: Completeness,
}

/// A file that is being read.
pub struct OutputContent {
    /// Its name, without folders.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// Bytes, where that is known before.
    pub size: Option<u64>,
    /// The bytes. A stream that breaks off ends with an error, never as if it was whole.
    pub stream: ContentStream,
}

impl OutputContent {
    /// Puts all of it into a store, such as to give it to another session as [`crate::Source::stored`]. Memory: one piece at a time.
    /// Dropped, it leaves nothing.
    ///
    /// # Errors
    /// `TooLarge` beyond `limit` bytes; `FileNotFound`, `NotAFile` and `Unreadable` when the file is not what it was or the stream
    /// breaks off; `Changed` when there are fewer bytes or more than were told before; `Store`.
    pub async fn store(self, store: &Store, limit: u64) -> Result<ArtifactContent, ArtifactError> {
        let Self { name, size, mut stream, .. } = self;
        let failed = |error| match error {
            StoreError::TooMuch { limit, .. } => {
                ArtifactError::TooLarge { what: format!("the file `{name}`"), limit }
            }
            other => other.into(),
        };
        let store = store.clone();
        let mut insertion =
            blocking(move || store.insertion(Variant::Plain, limit)).await?.map_err(failed)?;
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            // No more is taken than was told before.
            if size.is_some_and(|size| insertion.size().saturating_add(piece.len() as u64) > size) {
                return Err(ArtifactError::Changed { name });
            }
            let pushed = blocking(move || insertion.push(&piece).map(|()| insertion)).await?;
            insertion = pushed.map_err(failed)?;
        }
        if size.is_some_and(|size| size != insertion.size()) {
            return Err(ArtifactError::Changed { name });
        }
        let inserted = blocking(move || insertion.finish()).await?.map_err(failed)?;
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

/// Why a file that a session produced is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It is not there any more.
    #[error("the file `{name}` is not there any more")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// Something else than a plain file has its name now.
    #[error("`{name}` is not a plain file any more")]
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

/// Of a file that is to become an artifact.
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
    async fn what_is_read_goes_into_a_store_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap();
        for size in [None, Some(5)] {
            let stored = content(size, vec![piece("hel"), piece("lo")]).store(&store, 5).await.unwrap();
            assert_eq!(stored, ArtifactContent { digest: Digest::of(b"hello"), size: 5 });
        }
        let broken = OutputError::Failed { name: "report".to_owned(), reason: "it was cut".to_owned() };
        let gone = OutputError::NotFound { name: "report".to_owned() };
        for (content, kind) in [
            (content(None, vec![piece("hel"), piece("lo!")]), Kind::TooLarge),
            (content(Some(5), vec![piece("hel")]), Kind::Changed),
            (content(Some(3), vec![piece("hell")]), Kind::Changed),
            (content(None, vec![piece("hel"), Err(broken)]), Kind::Unreadable),
            (content(None, vec![Err(gone)]), Kind::FileNotFound),
        ] {
            let error = content.store(&store, 5).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("`report`"), "{error}");
        }
        let usage = store.usage().unwrap();
        assert_eq!((usage.contents, usage.temporary), (1, 0));
    }
}
