//! The body of an answer, counted as it comes, into the store.
//!
//! In memory are at most [`BATCH`] bytes and a piece of the connection's. It owns a temporary file of the store, which goes with it; one
//! of a process that was killed is removed by the store's sweep.

use conjure_conversation::ArtifactContent;
use conjure_store::{Insertion, Store, Variant};
use reqwest::Response;
use tokio_util::sync::CancellationToken;

use super::dial::failed;
use super::web_url::WebUrl;
use crate::blocking::blocking;
use crate::error::ArtifactError;
use crate::media::HEAD_BYTES;

/// How much is written at once, in bytes.
const BATCH: usize = 256 << 10;

/// A body that is in the store.
#[derive(Debug)]
pub(crate) struct TakenIn {
    pub(crate) content: ArtifactContent,
    /// Its first bytes, as many as tell a media type.
    pub(crate) head: Vec<u8>,
}

/// Takes the body in, of at most `limit` bytes. The future may be dropped at any point; a body that is not whole by then leaves nothing.
pub(crate) async fn take_in(
    mut response: Response,
    url: &WebUrl,
    limit: u64,
    store: &Store,
) -> Result<TakenIn, ArtifactError> {
    let too_large = || ArtifactError::TooLarge { what: format!("what `{}` leads to", url.shown()), limit };
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut sink = Sink::open(store.clone(), limit).await?;
    let (mut total, mut head, mut batch) = (0_u64, Vec::new(), Vec::new());
    while let Some(piece) = response.chunk().await.map_err(|error| failed(url, error))? {
        total = total.saturating_add(piece.len() as u64);
        if total > limit {
            return Err(too_large());
        }
        head.extend_from_slice(&piece[..piece.len().min(HEAD_BYTES - head.len())]);
        // Copied: a piece may be one byte, and hold on to much more.
        batch.extend_from_slice(&piece);
        if batch.len() >= BATCH {
            (sink, batch) = sink.push(batch).await?;
        }
    }
    // Nothing more comes, and the connection need not wait for the disk.
    drop(response);
    let content = sink.finish(batch).await?;
    Ok(TakenIn { content, head })
}

/// What is written. Each step goes through a thread that may block, and takes the content there and back.
struct Sink {
    insertion: Insertion,
}

impl Sink {
    async fn open(store: Store, limit: u64) -> Result<Self, ArtifactError> {
        let insertion = blocking(move || store.insertion(Variant::Plain, limit)).await??;
        Ok(Self { insertion })
    }

    /// Writes these, and gives back where they were.
    async fn push(mut self, mut batch: Vec<u8>) -> Result<(Self, Vec<u8>), ArtifactError> {
        blocking(move || {
            self.insertion.push(&batch)?;
            batch.clear();
            Ok((self, batch))
        })
        .await?
    }

    /// Whoever drops this while the last bytes are written leaves nothing: the step that makes a content of them looks first.
    async fn finish(mut self, batch: Vec<u8>) -> Result<ArtifactContent, ArtifactError> {
        let abandoned = CancellationToken::new();
        let seen = abandoned.clone();
        let _when_dropped = abandoned.drop_guard();
        blocking(move || {
            self.insertion.push(&batch)?;
            if seen.is_cancelled() {
                return Err(ArtifactError::Cancelled);
            }
            let inserted = self.insertion.finish()?;
            Ok(ArtifactContent { digest: inserted.digest, size: inserted.size })
        })
        .await?
    }
}
