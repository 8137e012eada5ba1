//! Streams a response body into the store and counts its bytes.
//!
//! Memory: at most [`BATCH`] bytes and one chunk of the connection. The store's staging file is removed when the future is dropped;
//! after a crash the store's sweep removes it.

use conjure_conversation::ArtifactContent;
use conjure_fs::run_blocking;
use conjure_store::{ContentWriter, FileMode, Store};
use reqwest::Response;
use tokio_util::sync::CancellationToken;

use super::pinned_client::connection_error;
use super::web_url::WebUrl;
use crate::error::ArtifactError;
use crate::media::HEAD_BYTES;

/// How much is written at once, in bytes.
const BATCH: usize = 256 << 10;

/// A body in the store.
#[derive(Debug)]
pub(crate) struct StoredBody {
    pub(crate) content: ArtifactContent,
    /// The first [`HEAD_BYTES`] bytes, for media type detection.
    pub(crate) head: Vec<u8>,
}

/// Stores a body of at most `limit` bytes. The future may be dropped at any point; an incomplete body leaves nothing behind.
pub(crate) async fn store_body(
    mut response: Response,
    url: &WebUrl,
    limit: u64,
    store: &Store,
) -> Result<StoredBody, ArtifactError> {
    let too_large =
        || ArtifactError::TooLarge { what: format!("the content of `{}`", url.redacted()), limit };
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut sink = StoreWriter::open(store.clone(), limit).await?;
    let (mut total, mut head, mut batch) = (0_u64, Vec::new(), Vec::new());
    while let Some(piece) = response.chunk().await.map_err(|error| connection_error(url, error))? {
        total = total.saturating_add(piece.len() as u64);
        if total > limit {
            return Err(too_large());
        }
        head.extend_from_slice(&piece[..piece.len().min(HEAD_BYTES - head.len())]);
        // Copied, because a chunk of one byte may keep a large buffer alive.
        batch.extend_from_slice(&piece);
        if batch.len() >= BATCH {
            (sink, batch) = sink.push(batch).await?;
        }
    }
    // The body is complete: close the connection before waiting for the disk.
    drop(response);
    let content = sink.finish(batch).await?;
    Ok(StoredBody { content, head })
}

/// A staged content. Each step moves it to a blocking thread and back.
struct StoreWriter {
    insertion: ContentWriter,
}

impl StoreWriter {
    async fn open(store: Store, limit: u64) -> Result<Self, ArtifactError> {
        let insertion = run_blocking(move || store.writer(FileMode::Plain, limit)).await??;
        Ok(Self { insertion })
    }

    /// Writes a batch and returns its empty buffer.
    async fn push(mut self, mut batch: Vec<u8>) -> Result<(Self, Vec<u8>), ArtifactError> {
        run_blocking(move || {
            self.insertion.push(&batch)?;
            batch.clear();
            Ok((self, batch))
        })
        .await?
    }

    /// Writes the last batch and commits. If the future is dropped meanwhile, nothing is committed.
    async fn finish(mut self, batch: Vec<u8>) -> Result<ArtifactContent, ArtifactError> {
        let abandoned = CancellationToken::new();
        let is_abandoned = abandoned.clone();
        let _guard = abandoned.drop_guard();
        run_blocking(move || {
            self.insertion.push(&batch)?;
            if is_abandoned.is_cancelled() {
                return Err(ArtifactError::Cancelled);
            }
            let inserted = self.insertion.finish()?;
            Ok(ArtifactContent { digest: inserted.digest, size: inserted.size })
        })
        .await?
    }
}
