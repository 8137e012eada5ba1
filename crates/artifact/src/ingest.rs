//! Ingests artifacts: validates a registration and stores its bytes in the tenant's store (ADR-0018, sections 2 and 8).
//!
//! A file is opened once, without blocking on pipes, and beneath an allowed directory if some are configured. So the file that was
//! checked is the file that is read. It streams into the store in chunks; a dropped or cancelled call stops at the next chunk and
//! leaves nothing behind. A URL is checked and not fetched. Content that was stored and never recorded is garbage of its store.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::Digest;
use conjure_conversation::{Artifact, ArtifactContent, ArtifactName, ArtifactSource, ContentTypeOrigin};
use conjure_egress::EgressPolicy;
use conjure_fs::{DirHandle, Links, OpenError, RegularFile, read_head, run_blocking};
use conjure_store::{FileMode, InsertResult, Store, StoreError, Verify};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::ArtifactError;
use crate::fetch::{Fetch, NetworkPolicyFn, full_network};
use crate::media::{HEAD_BYTES, content_type_of, is_content_type, is_known_name};
use crate::options::{ArtifactOptions, UrlFetch};
use crate::registration::{Registration, RegistrationSource};
use crate::uri::ArtifactUri;

/// The maximum number of bytes of an artifact's metadata, as JSON.
const MAX_METADATA_BYTES: usize = 4 * 1024;

/// Ingests artifacts, as the options permit. Cheap to clone.
#[derive(Clone)]
pub struct ArtifactIngestor {
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
    network: Arc<NetworkPolicyFn>,
}

impl ArtifactIngestor {
    /// Creates an ingestor with these options, without a fetcher.
    #[must_use]
    pub fn new(options: Arc<ArtifactOptions>) -> Self {
        Self { options, fetch: None, network: full_network() }
    }

    /// Checks URLs with this fetcher ([`Fetch::check_url`]).
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// Applies a tenant's network policy. `network` is called for each URL.
    #[must_use]
    pub fn with_network(self, network: impl Fn() -> EgressPolicy + Send + Sync + 'static) -> Self {
        Self { network: Arc::new(network), ..self }
    }

    /// Validates a registration and stores its bytes. The caller records the artifact.
    ///
    /// # Errors
    /// As for [`ArtifactIngestor::open`] and [`OpenedArtifact::ingest`].
    pub async fn ingest(
        &self,
        registration: Registration,
        store: &Store,
        cancel: &CancellationToken,
    ) -> Result<Artifact, ArtifactError> {
        self.open(registration, store, cancel).await?.ingest(cancel).await
    }

    /// Validates a registration and opens its source, so that the size is known before any byte is stored.
    ///
    /// # Errors
    /// `InvalidRegistration` (metadata, media type), `FileNotFound`, `NotAFile`, `PermissionDenied`, `PathNotAllowed`,
    /// `PathTraversal`, `TooLarge`, `Cancelled`, `Store`; of a URL `InvalidUri`, `SchemeNotAllowed`, `HostBlocked`,
    /// `FetchDisabled`.
    pub async fn open(
        &self,
        registration: Registration,
        store: &Store,
        cancel: &CancellationToken,
    ) -> Result<OpenedArtifact, ArtifactError> {
        check_registration(&registration)?;
        if cancel.is_cancelled() {
            return Err(ArtifactError::Cancelled);
        }
        let Registration { name, source, content_type, metadata } = registration;
        if let RegistrationSource::Url(url) = source {
            let url = self.check_url(&url)?;
            let guess = || content_type_of(file_name_in(&url), b"");
            let DetectedMediaType { content_type, origin } =
                content_type.map_or_else(|| guess().into(), declared);
            let artifact = Artifact::new(name, ArtifactSource::Url { url }, content_type, None);
            let artifact = Artifact { metadata, content_type_origin: origin, ..artifact };
            return Ok(OpenedArtifact(OpenedKind::Url(Box::new(artifact))));
        }
        let options = Arc::clone(&self.options);
        let work = IngestJob { options, store: store.clone(), name, content_type, metadata };
        let opened = cancel.run_until_cancelled(run_blocking(move || work.open(source))).await;
        opened.ok_or(ArtifactError::Cancelled)??
    }

    /// Checks that a URL can be fetched, and returns it in the form that is recorded.
    fn check_url(&self, url: &str) -> Result<String, ArtifactError> {
        let url = match ArtifactUri::parse(url)? {
            ArtifactUri::Url(url) => url,
            other => {
                let reason = "it is not a URL: write `https://HOST/PATH`".to_owned();
                return Err(ArtifactError::InvalidUri { uri: other.to_string(), reason });
            }
        };
        if self.options.url_fetch == UrlFetch::Off {
            return Err(ArtifactError::FetchDisabled);
        }
        if let Some(fetch) = &self.fetch {
            fetch.check_url(&url, &(self.network)())?;
        }
        let scheme = url.split(':').next().unwrap_or_default();
        let schemes = &self.options.allowed_schemes;
        if !schemes.iter().any(|allowed| allowed.eq_ignore_ascii_case(scheme)) {
            return Err(ArtifactError::scheme_not_allowed(scheme, schemes, ""));
        }
        Ok(url)
    }
}

impl fmt::Debug for ArtifactIngestor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A validated artifact with an open source. None of its bytes are stored yet.
#[derive(Debug)]
pub struct OpenedArtifact(OpenedKind);

#[derive(Debug)]
enum OpenedKind {
    /// A URL has no bytes to store.
    Url(Box<Artifact>),
    ByteSource(Box<IngestJob>, Box<ByteSource>),
}

/// The source of the bytes to store.
#[derive(Debug)]
enum ByteSource {
    File { file: RegularFile, path: PathBuf, media: DetectedMediaType },
    Content { bytes: bytes::Bytes, content_type: Option<String> },
    Stored { store: Store, digest: Digest, content_type: Option<String>, size: u64 },
}

impl ByteSource {
    fn size(&self) -> u64 {
        match self {
            Self::File { file, .. } => file.size(),
            Self::Content { bytes, .. } => bytes.len() as u64,
            Self::Stored { size, .. } => *size,
        }
    }
}

impl OpenedArtifact {
    /// How many bytes it adds to the store: 0 for a URL and for content that is already there.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.0 {
            OpenedKind::Url(_) => 0,
            OpenedKind::ByteSource(_, bytes) => bytes.size(),
        }
    }

    /// Whether it has content in the store. A URL has none before it is fetched.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        matches!(self.0, OpenedKind::ByteSource(..))
    }

    /// Stores its bytes. The caller records the artifact.
    ///
    /// # Errors
    /// `Changed`, `Cancelled`, `Store`. Nothing is left behind then.
    pub async fn ingest(self, cancel: &CancellationToken) -> Result<Artifact, ArtifactError> {
        let (work, bytes) = match self.0 {
            OpenedKind::Url(artifact) => return Ok(*artifact),
            OpenedKind::ByteSource(work, bytes) => (work, bytes),
        };
        let call = cancel.child_token();
        let _guard = call.clone().drop_guard();
        let ingested =
            cancel.run_until_cancelled(run_blocking(move || work.store_bytes(*bytes, &call))).await;
        ingested.ok_or(ArtifactError::Cancelled)??
    }
}

/// Checks everything that needs no I/O.
fn check_registration(registration: &Registration) -> Result<(), ArtifactError> {
    let invalid = |reason| ArtifactError::InvalidRegistration { name: registration.name.clone(), reason };
    let declared = match &registration.source {
        RegistrationSource::Content { content_type, .. }
        | RegistrationSource::Stored { content_type, .. } => content_type.as_ref(),
        RegistrationSource::File { .. }
        | RegistrationSource::RealFile { .. }
        | RegistrationSource::Url(_) => None,
    };
    for content_type in registration.content_type.iter().chain(declared) {
        if !is_content_type(content_type) {
            let shown: String = content_type.chars().take(64).flat_map(char::escape_default).collect();
            return Err(invalid(format!("`{shown}` is not a media type: write one such as `text/csv`")));
        }
    }
    let metadata = serde_json::to_vec(&registration.metadata).map_or(0, |json| json.len());
    if metadata > MAX_METADATA_BYTES {
        return Err(invalid(format!(
            "its metadata has {metadata} bytes as JSON, and the maximum is {MAX_METADATA_BYTES}"
        )));
    }
    Ok(())
}

/// The blocking part of ingesting one artifact.
#[derive(Debug)]
struct IngestJob {
    options: Arc<ArtifactOptions>,
    store: Store,
    name: ArtifactName,
    /// The declared media type.
    content_type: Option<String>,
    metadata: BTreeMap<String, Value>,
}

impl IngestJob {
    fn open(self, source: RegistrationSource) -> Result<OpenedArtifact, ArtifactError> {
        let bytes = match source {
            RegistrationSource::File { path } => self.open_file(path, Links::Followed)?,
            RegistrationSource::RealFile { path } => self.open_file(path, Links::Refused)?,
            RegistrationSource::Content { bytes, content_type } => {
                ByteSource::Content { bytes, content_type }
            }
            RegistrationSource::Stored { store, digest, content_type } => {
                let size = if store.root() == self.store.root() { None } else { store.size(&digest)? };
                ByteSource::Stored { store, digest, content_type, size: size.unwrap_or(0) }
            }
            // `ArtifactIngestor::open` handles URLs; this arm is never reached.
            RegistrationSource::Url(url) => {
                let content_type = self.content_type.clone().unwrap_or_default();
                let artifact = Artifact::new(self.name, ArtifactSource::Url { url }, content_type, None);
                return Ok(OpenedArtifact(OpenedKind::Url(Box::new(artifact))));
            }
        };
        let limit = self.options.max_file_size;
        if bytes.size() > limit {
            return Err(self.too_large(limit));
        }
        Ok(OpenedArtifact(OpenedKind::ByteSource(Box::new(self), Box::new(bytes))))
    }

    fn open_file(&self, path: PathBuf, links: Links) -> Result<ByteSource, ArtifactError> {
        let path = std::path::absolute(&path).unwrap_or(path);
        let file = match &self.options.allowed_dirs {
            None => RegularFile::open(&path, links).map_err(|unopened| self.open_error(unopened))?,
            Some(dirs) => self.open_allowed(&path, dirs, links)?,
        };
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let media = self.content_type(None, file_name.as_deref(), || read_head(file.file(), HEAD_BYTES))?;
        Ok(ByteSource::File { file, path, media })
    }

    fn store_bytes(self, bytes: ByteSource, cancel: &CancellationToken) -> Result<Artifact, ArtifactError> {
        let (limit, is_active) = (self.options.max_file_size, || !cancel.is_cancelled());
        match bytes {
            ByteSource::File { file, path, media } => {
                let file = file.into_file().into();
                let inserted = self.store.insert_file_handle_cancellable(
                    file,
                    &path,
                    FileMode::Plain,
                    limit,
                    &is_active,
                );
                let inserted = inserted.map_err(|error| self.store_error(error))?;
                Ok(self.artifact(ArtifactSource::File { path }, media, inserted))
            }
            ByteSource::Content { bytes, content_type } => {
                let inserted = self.store.insert_bytes(&bytes, FileMode::Plain)?;
                let media = self.content_type(content_type, None, || Ok(head(&bytes).to_vec()))?;
                Ok(self.artifact(ArtifactSource::Content, media, inserted))
            }
            ByteSource::Stored { store, digest, content_type, .. } => {
                let inserted = self.store.insert_from_store(&store, &digest, limit, &is_active);
                let inserted = inserted.map_err(|error| self.store_error(error))?;
                let media = self.content_type(content_type, None, || {
                    let content = self.store.get(&digest, Verify::No).map_err(io::Error::other)?;
                    read_head(&content.into_file(), HEAD_BYTES)
                })?;
                Ok(self.artifact(ArtifactSource::Content, media, inserted))
            }
        }
    }

    /// Opens a file beneath one of the allowed directories. A file elsewhere is not touched, so its existence is not revealed.
    fn open_allowed(
        &self,
        path: &Path,
        dirs: &[PathBuf],
        links: Links,
    ) -> Result<RegularFile, ArtifactError> {
        // Try the path as named, and then, if links are followed, the resolved path: a link may lead into an allowed directory, and an
        // allowed directory may be named by a link. The kernel enforces the boundary in both cases.
        let resolved = match links {
            Links::Followed => path.canonicalize().ok().filter(|resolved| resolved != path),
            Links::Refused => None,
        };
        let mut found = PathRejection::OutsideRoots;
        for path in std::iter::once(path).chain(resolved.as_deref()) {
            for dir in dirs {
                let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
                let resolved = dir.canonicalize().ok().filter(|resolved| *resolved != dir);
                for dir in std::iter::once(&dir).chain(&resolved) {
                    let Ok(relative) = path.strip_prefix(dir) else { continue };
                    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
                    match DirHandle::open(dir)
                        .map_err(OpenError::from)
                        .and_then(|dir| dir.open_file(relative, links))
                    {
                        Ok(file) => return Ok(file),
                        Err(unopened) => found = found.or(unopened),
                    }
                }
            }
        }
        Err(match found {
            PathRejection::OutsideRoots => ArtifactError::PathNotAllowed { name: self.name.to_string() },
            PathRejection::OpenFailed(unopened) => self.open_error(unopened),
        })
    }

    /// The media type: declared, else detected from names and bytes.
    fn content_type(
        &self,
        declared_by_source: Option<String>,
        file_name: Option<&str>,
        head: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> Result<DetectedMediaType, ArtifactError> {
        if let Some(content_type) = self.content_type.clone().or(declared_by_source) {
            return Ok(declared(content_type));
        }
        let head = head().map_err(|error| ArtifactError::unread(&self.name, &error))?;
        let name = file_name.filter(|name| is_known_name(name)).unwrap_or(self.name.as_str());
        Ok(content_type_of(name, &head).into())
    }

    fn artifact(self, source: ArtifactSource, media: DetectedMediaType, inserted: InsertResult) -> Artifact {
        let content = ArtifactContent { digest: inserted.digest, size: inserted.size };
        let artifact = Artifact::new(self.name, source, media.content_type, Some(content));
        Artifact { content_type_origin: media.origin, metadata: self.metadata, ..artifact }
    }

    fn too_large(&self, limit: u64) -> ArtifactError {
        ArtifactError::TooLarge { what: format!("the artifact `{}`", self.name), limit }
    }

    fn open_error(&self, unopened: OpenError) -> ArtifactError {
        let name = self.name.to_string();
        match unopened {
            OpenError::NotFound(_) => ArtifactError::FileNotFound { name },
            OpenError::NotRegular | OpenError::Link => ArtifactError::NotAFile { name },
            OpenError::EscapesRoot => ArtifactError::PathTraversal { path: name },
            OpenError::PermissionDenied(_) => ArtifactError::PermissionDenied { name },
            OpenError::Failed(errno) => ArtifactError::unread(name, &errno.into()),
        }
    }

    fn store_error(&self, error: StoreError) -> ArtifactError {
        let name = self.name.to_string();
        match error {
            StoreError::Changed { .. } => ArtifactError::Changed { name },
            StoreError::NotRegularFile { .. } => ArtifactError::NotAFile { name },
            StoreError::LimitExceeded { limit, .. } => self.too_large(limit),
            StoreError::Cancelled { .. } => ArtifactError::Cancelled,
            other => ArtifactError::Store(other),
        }
    }
}

/// A media type and its origin.
#[derive(Debug)]
struct DetectedMediaType {
    content_type: String,
    origin: ContentTypeOrigin,
}

/// A declared media type.
const fn declared(content_type: String) -> DetectedMediaType {
    DetectedMediaType { content_type, origin: ContentTypeOrigin::Declared }
}

/// A detected media type.
impl From<String> for DetectedMediaType {
    fn from(content_type: String) -> Self {
        Self { content_type, origin: ContentTypeOrigin::Guessed }
    }
}

/// Why a file could not be opened beneath any of the allowed directories.
enum PathRejection {
    /// It is beneath none of them.
    OutsideRoots,
    /// It could not be opened beneath one.
    OpenFailed(OpenError),
}

impl PathRejection {
    /// Keeps the first error, unless that was an escape: another directory may contain the file.
    fn or(self, unopened: OpenError) -> Self {
        match self {
            Self::OutsideRoots | Self::OpenFailed(OpenError::EscapesRoot) => Self::OpenFailed(unopened),
            first => first,
        }
    }
}

/// The first [`HEAD_BYTES`] bytes.
fn head(bytes: &[u8]) -> &[u8] {
    bytes.get(..HEAD_BYTES).unwrap_or(bytes)
}

/// The path of a URL, whose end may be a file name.
fn file_name_in(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path)
}

#[cfg(test)]
mod tests;
