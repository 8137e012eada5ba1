//! A download from the service: read piece by piece, limited in size, and checked for completeness at its end.
//!
//! Dropping it closes its connection. It writes nothing. A download may break at any piece, so the caller should write to a temporary file
//! and rename it at the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::Deadline;
use futures_util::{Stream, stream};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use crate::client_state::ClientState;
use crate::hosted::{FileMetadata, HostedError, HostedErrorKind, HostedLimits};
use crate::wire::REQUEST_ID_HEADERS;

/// A running download.
pub struct Download {
    shared: Arc<ClientState>,
    response: Response,
    record: Option<FileMetadata>,
    request_id: Option<String>,
    deadline: Deadline,
    transfer: Duration,
    received: u64,
    /// The size that the download must have at its end, if known.
    size: Option<u64>,
    limit: u64,
    is_finished: bool,
}

impl Download {
    pub(crate) fn new(
        shared: Arc<ClientState>,
        response: Response,
        limits: &HostedLimits,
        record: Option<FileMetadata>,
    ) -> Self {
        let size = record.as_ref().map(|record| record.size).or_else(|| response.content_length());
        Self {
            request_id: shared.http.transport().errors().request_id(response.headers(), REQUEST_ID_HEADERS),
            deadline: shared.http.transport().clock().deadline(limits.transfer),
            transfer: limits.transfer,
            shared,
            response,
            record,
            received: 0,
            size,
            limit: limits.download_bytes,
            is_finished: false,
        }
    }

    /// The metadata of the file; `None` for a skill's version.
    #[must_use]
    pub const fn record(&self) -> Option<&FileMetadata> {
        self.record.as_ref()
    }

    /// The file's name at the service; see [`FileMetadata::safe_name`].
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.name.as_str())
    }

    /// The content type.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        let from_metadata = self.record.as_ref().map(|record| record.media_type.as_str());
        let from_header = || self.response.headers().get(CONTENT_TYPE)?.to_str().ok();
        from_metadata.filter(|media_type| !media_type.is_empty()).or_else(from_header)
    }

    /// The size in bytes, if known in advance.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next piece; `None` at the end, after the size was checked.
    ///
    /// # Errors
    /// [`HostedErrorKind::Cut`] if the download ends too early. [`HostedErrorKind::OverLimit`] if it is too large. Nothing follows an
    /// error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HostedError> {
        if self.is_finished {
            return Ok(None);
        }
        let next = self.read().await;
        self.is_finished = !matches!(next, Ok(Some(_)));
        next.map_err(|error| error.with_request_id(self.request_id.clone()))
    }

    async fn read(&mut self) -> Result<Option<Bytes>, HostedError> {
        let transport = self.shared.http.transport();
        let chunk =
            transport.chunk(&mut self.response, self.deadline).await.map_err(|failure| {
                match transport.clock().remaining(self.deadline) {
                    Duration::ZERO => {
                        let message = format!("the download took longer than {:?}", self.transfer);
                        HostedError::new(HostedErrorKind::Timeout, message)
                    }
                    _ => HostedError::from_attempt(failure),
                }
            });
        let Some(chunk) = chunk? else {
            return match self.size {
                Some(size) if size != self.received => {
                    let message =
                        format!("the download ended after {} of {size} bytes; fetch it again", self.received);
                    Err(HostedError::new(HostedErrorKind::Cut, message))
                }
                _ => Ok(None),
            };
        };
        self.received = self.received.saturating_add(chunk.len() as u64);
        if let Some(size) = self.size.filter(|size| self.received > *size) {
            let message = format!("the download is larger than the {size} bytes that the service said");
            return Err(HostedError::new(HostedErrorKind::Protocol, message));
        }
        if self.received > self.limit {
            let message = format!("the download is larger than the limit of {} bytes", self.limit);
            return Err(HostedError::new(HostedErrorKind::OverLimit, message));
        }
        Ok(Some(chunk))
    }

    /// The complete content.
    ///
    /// # Errors
    /// As for [`Download::chunk`].
    pub async fn bytes(mut self) -> Result<Vec<u8>, HostedError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    /// The pieces as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, HostedError>> + Send {
        stream::unfold(self, |mut download| async move {
            download.chunk().await.transpose().map(|chunk| (chunk, download))
        })
    }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download")
            .field("record", &self.record)
            .field("received", &self.received)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
