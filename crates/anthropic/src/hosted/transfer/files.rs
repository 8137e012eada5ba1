//! The Files API: files for containers, and files that were created in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use conjure_artifact::content_type_of;
use reqwest::Method;

use crate::client_state::ClientState;
use crate::hosted::page::{Items, Page, PageToken, items, parse};
use crate::hosted::request::{Api, ApiRequest};
use crate::hosted::skills::paging;
use crate::hosted::sync::IndexKey;
use crate::hosted::transfer::multipart::{Content, Form, OnProgress, Progress};
use crate::hosted::{Download, FileId, FileMetadata, HostedError, HostedErrorKind, HostedLimits};
use crate::messages::Client;

/// The Files API under one key. Cheap to clone. It shares the rate limiter and the connections of its [`Client`].
#[derive(Clone)]
pub struct Files {
    shared: Arc<ClientState>,
    limits: HostedLimits,
}

/// A file to upload.
#[derive(Clone)]
pub struct FileUpload {
    source: Source,
    name: Option<String>,
    media_type: Option<String>,
    on_progress: Option<OnProgress>,
}

#[derive(Clone)]
enum Source {
    Path(PathBuf),
    Open(Arc<std::fs::File>),
    Bytes(Bytes),
}

impl FileUpload {
    /// The regular file at this path, under its own name. The client reads it while it sends it.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        Self { source: Source::Path(path.into()), name: None, media_type: None, on_progress: None }
    }

    /// An open regular file, under this name. The client reads it from its start while it sends it.
    pub fn from_file(name: impl Into<String>, file: std::fs::File) -> Self {
        Self {
            source: Source::Open(Arc::new(file)),
            name: Some(name.into()),
            media_type: None,
            on_progress: None,
        }
    }

    /// These bytes under this name.
    pub fn from_bytes(name: impl Into<String>, content: impl Into<Bytes>) -> Self {
        Self {
            source: Source::Bytes(content.into()),
            name: Some(name.into()),
            media_type: None,
            on_progress: None,
        }
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the content type. By default the name determines it.
    #[must_use]
    pub fn with_media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// Sets a callback that is called for each piece that was passed to the connection. It must not block.
    #[must_use]
    pub fn on_progress(mut self, callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(callback));
        self
    }
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

    /// Uploads a file. A content block [`container_upload`](crate::hosted::container_upload) puts it into a container.
    ///
    /// # Errors
    /// [`HostedError`]. If the file cannot be read or exceeds the limit, nothing was sent. A request that [may have
    /// happened](HostedError::may_have_happened) is not repeated.
    pub async fn upload(&self, upload: FileUpload) -> Result<FileMetadata, HostedError> {
        let FileUpload { source, name, media_type, on_progress } = upload;
        let (content, size, own_name) = match source {
            Source::Bytes(bytes) => {
                let size = bytes.len() as u64;
                (Content::Bytes(bytes), size, None)
            }
            Source::Path(path) => open(path).await?,
            Source::Open(file) => measured(file).await?,
        };
        let name = name.or(own_name).filter(|name| !name.is_empty()).ok_or_else(|| {
            HostedError::new(HostedErrorKind::Unreadable, "the file has no name that is UTF-8; give it one")
        })?;
        if size > self.limits.file_bytes {
            let limit = self.limits.file_bytes;
            let message = format!("`{name}` has {size} bytes, above the limit of {limit}; upload less of it");
            return Err(HostedError::new(HostedErrorKind::OverLimit, message));
        }
        let media_type = media_type.unwrap_or_else(|| content_type_of(&name, b""));
        if media_type.bytes().any(|byte| !(byte == b' ' || byte.is_ascii_graphic())) {
            let message = "the content type holds characters that no header can carry";
            return Err(HostedError::new(HostedErrorKind::Unreadable, message));
        }
        let form = Form::new(on_progress).file("file", &name, &media_type, content, size);
        self.shared
            .json(ApiRequest::new(Api::Files, Method::POST, vec!["files"]).with_form(&form), &self.limits)
            .await
    }

    /// All files, fetched page by page.
    #[must_use]
    pub fn list(&self) -> Items<FileMetadata> {
        let files = self.clone();
        items(move |at| {
            let files = files.clone();
            Box::pin(async move { files.page(None, at.as_ref()).await })
        })
    }

    /// One page of files, starting at `at`, with at most `limit` entries. By default the service chooses the number.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn page(
        &self,
        limit: Option<u32>,
        at: Option<&PageToken>,
    ) -> Result<Page<FileMetadata>, HostedError> {
        let request = ApiRequest::get(Api::Files, vec!["files"]).with_query(paging(limit, at));
        self.shared.record(request, &self.limits, parse).await
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

/// An open file with its size.
async fn measured(file: Arc<std::fs::File>) -> Result<(Content, u64, Option<String>), HostedError> {
    let measured = tokio::task::spawn_blocking(move || {
        let size = file.metadata().map(|metadata| metadata.len());
        (file, size)
    });
    let crashed = |_| HostedError::new(HostedErrorKind::Unreadable, "the reader of the file has crashed");
    let (file, size) = measured.await.map_err(crashed)?;
    let size = size.map_err(|error| HostedError::unreadable(Path::new("(an open file)"), &error))?;
    Ok((Content::File(file, PathBuf::from("(an open file)")), size, None))
}

/// Opens a regular file on a blocking thread.
async fn open(path: PathBuf) -> Result<(Content, u64, Option<String>), HostedError> {
    let opened = tokio::task::spawn_blocking(move || {
        let unreadable = |reason: &dyn std::fmt::Display| HostedError::unreadable(&path, reason);
        // The kind is checked first, because opening a pipe would wait for its other end.
        let is_plain = std::fs::metadata(&path).map_err(|error| unreadable(&error))?.is_file();
        let file = is_plain.then(|| std::fs::File::open(&path)).ok_or_else(|| unreadable(&NOT_REGULAR))?;
        let file = file.map_err(|error| unreadable(&error))?;
        let metadata = file.metadata().map_err(|error| unreadable(&error))?;
        if !metadata.is_file() {
            return Err(unreadable(&NOT_REGULAR));
        }
        let name = path.file_name().and_then(|name| Path::new(name).to_str()).map(str::to_owned);
        Ok((Content::File(Arc::new(file), path.clone()), metadata.len(), name))
    });
    opened.await.unwrap_or_else(|_| {
        Err(HostedError::new(HostedErrorKind::Unreadable, "the reader of the file has crashed"))
    })
}

const NOT_REGULAR: &str = "it is not a regular file";

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FileUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileUpload").field("name", &self.name).finish_non_exhaustive()
    }
}
