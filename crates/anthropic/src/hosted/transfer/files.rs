//! The Files API: files for containers, and files that were created in them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Method;

use crate::client_state::ClientState;
use crate::hosted::request::{Api, ApiRequest};
use crate::hosted::sync::IndexKey;
use crate::hosted::transfer::multipart::{Content, Form};
use crate::hosted::{Download, FileId, FileMetadata, HostedError, HostedErrorKind, HostedLimits};
use crate::messages::Client;

/// The Files API under one key. Cheap to clone. It shares the rate limiter and the connections of its [`Client`].
#[derive(Clone)]
pub struct Files {
    shared: Arc<ClientState>,
    limits: HostedLimits,
}

impl Client {
    /// The Files API under this key.
    #[must_use]
    pub fn files(&self) -> Files {
        Files { shared: Arc::clone(self.shared()), limits: HostedLimits::default() }
    }
}

impl Files {
    /// Sets the limits.
    #[must_use]
    pub const fn with_limits(mut self, limits: HostedLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &HostedLimits {
        &self.limits
    }

    pub(in crate::hosted) fn account(&self) -> IndexKey {
        let transport = self.shared.http.transport();
        IndexKey { service: transport.base_url().to_owned(), key: transport.key_digest() }
    }

    /// Uploads a regular file under this name, with this content type. The client reads it from its start while it sends it.
    /// A content block [`container_upload`](crate::hosted::container_upload) puts it into a container.
    ///
    /// # Errors
    /// [`HostedError`]. If the name is empty, the file is not a regular one, or it exceeds the limit, nothing was sent. A
    /// request that [may have happened](HostedError::may_have_happened) is not repeated.
    pub async fn upload(
        &self,
        name: &str,
        file: File,
        media_type: &str,
    ) -> Result<FileMetadata, HostedError> {
        let has_no_name = name.is_empty();
        let measured = tokio::task::spawn_blocking(move || {
            let size = file.metadata().and_then(|metadata| match metadata.is_file() && !has_no_name {
                true => Ok(metadata.len()),
                false => Err(io::Error::other("only a regular file with a name can be uploaded")),
            });
            (file, size)
        });
        let crashed = |_| HostedError::new(HostedErrorKind::Unreadable, "the reader of the file has crashed");
        let (file, size) = measured.await.map_err(crashed)?;
        let size = size.map_err(|error| HostedError::unreadable(Path::new(name), &error))?;
        if size > self.limits.file_bytes {
            let limit = self.limits.file_bytes;
            let message = format!("`{name}` has {size} bytes, above the limit of {limit}; upload less of it");
            return Err(HostedError::new(HostedErrorKind::OverLimit, message));
        }
        if media_type.bytes().any(|byte| !(byte == b' ' || byte.is_ascii_graphic())) {
            let message = "the content type holds characters that no header can carry";
            return Err(HostedError::new(HostedErrorKind::Unreadable, message));
        }
        let content = Content::File(Arc::new(file), PathBuf::from(name));
        let form = Form::new(None).file("file", name, media_type, content, size);
        self.shared
            .json(ApiRequest::new(Api::Files, Method::POST, vec!["files"]).with_form(&form), &self.limits)
            .await
    }

    /// The metadata of a file.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn metadata(&self, file: &FileId) -> Result<FileMetadata, HostedError> {
        self.shared.json(ApiRequest::get(Api::Files, vec!["files", file.as_str()]), &self.limits).await
    }

    /// The content of a file, with its name, type and size. The service returns only files that tools produced, not uploaded ones.
    ///
    /// # Errors
    /// [`HostedError`]. [`HostedErrorKind::OverLimit`] if the file is larger than the limit.
    pub async fn download(&self, file: &FileId) -> Result<Download, HostedError> {
        let record = self.metadata(file).await?;
        if record.size > self.limits.download_bytes {
            return Err(HostedError::new(
                HostedErrorKind::OverLimit,
                format!(
                    "the file has {} bytes, above the limit of {}",
                    record.size, self.limits.download_bytes
                ),
            ));
        }
        let path = vec!["files", file.as_str(), "content"];
        let response = self.shared.content(ApiRequest::get(Api::Files, path), &self.limits).await?;
        Ok(Download::new(Arc::clone(&self.shared), response, &self.limits, Some(record)))
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn delete(&self, file: &FileId) -> Result<(), HostedError> {
        let request = ApiRequest::new(Api::Files, Method::DELETE, vec!["files", file.as_str()]);
        self.shared.delete(request, &self.limits).await
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("limits", &self.limits).finish_non_exhaustive()
    }
}
