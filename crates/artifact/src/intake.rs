//! Taking in what a session is given: checked, its bytes in the tenant's store (ADR-0018, sections 2 and 8).
//!
//! A file is opened once, without waiting, and beneath one of the folders that the host allows where it names some: what was checked is
//! what is read. It streams into the store by pieces; a call that is dropped or called off stops at the next one and leaves nothing.
//! A URL is checked and not fetched. It owns no state: what was stored and is not recorded is garbage of its store.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::Digest;
use conjure_conversation::{Artifact, ArtifactContent, ArtifactName, ArtifactSource, ContentTypeOrigin};
use conjure_egress::Policy;
use conjure_store::{Inserted, Store, StoreError, Variant, Verify};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::error::ArtifactError;
use crate::fetch::{Fetch, NetworkOf, whole_network};
use crate::media::{HEAD_BYTES, content_type_of, is_content_type, is_known_name};
use crate::options::{ArtifactOptions, UrlFetch};
use crate::plain::{Folder, Links, PlainFile, Unopened, head_of, open_anywhere};
use crate::source::{Keep, Registration, Source};
use crate::uri::ArtifactUri;

/// The most bytes of what a host says of an artifact, as JSON.
const MOST_METADATA: usize = 4 * 1024;

/// Takes in artifacts, as the host's options permit. Clones are the same.
#[derive(Clone)]
pub struct Intake {
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
    network: Arc<NetworkOf>,
}

impl Intake {
    /// By these options.
    #[must_use]
    pub fn new(options: Arc<ArtifactOptions>) -> Self {
        Self { options, fetch: None, network: whole_network() }
    }

    /// The same, asking who fetches which URLs it would ([`Fetch::admit`]).
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// The same, for a tenant that reaches no more of the network than this. It is asked for each URL.
    #[must_use]
    pub fn with_network(self, network: impl Fn() -> Policy + Send + Sync + 'static) -> Self {
        Self { network: Arc::new(network), ..self }
    }

    /// Checks an artifact and puts its bytes into the store. It is not recorded by that.
    ///
    /// # Errors
    /// As for [`Intake::open`] and [`Opened::take_in`].
    pub async fn take_in(
        &self,
        registration: Registration,
        store: &Store,
        cancel: &CancellationToken,
    ) -> Result<Artifact, ArtifactError> {
        self.open(registration, store, cancel).await?.take_in(cancel).await
    }

    /// Checks an artifact and opens its source, so that its size is known before any of its bytes are put into the store.
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
    ) -> Result<Opened, ArtifactError> {
        check(&registration)?;
        if cancel.is_cancelled() {
            return Err(ArtifactError::Cancelled);
        }
        let Registration { name, source, content_type, metadata } = registration;
        if let Source::Url(url) = source {
            let url = self.check_url(&url)?;
            let guess = || content_type_of(name_in(&url), b"");
            let MediaType { content_type, origin } = content_type.map_or_else(|| guess().into(), declared);
            let artifact = Artifact::new(name, ArtifactSource::Url { url }, content_type, None);
            let artifact = Artifact { metadata, content_type_origin: origin, ..artifact };
            return Ok(Opened(Kind::Url(Box::new(artifact))));
        }
        let options = Arc::clone(&self.options);
        let work = Work { options, store: store.clone(), name, content_type, metadata };
        let opened = cancel.run_until_cancelled(blocking(move || work.open(source))).await;
        opened.ok_or(ArtifactError::Cancelled)??
    }

    /// The URL in the form that is recorded, if it can ever be fetched.
    fn check_url(&self, url: &str) -> Result<String, ArtifactError> {
        let url = match ArtifactUri::parse(url)? {
            ArtifactUri::Url(url) => url,
            other => {
                let reason = "it is no URL: write `https://HOST/PATH`".to_owned();
                return Err(ArtifactError::InvalidUri { uri: other.to_string(), reason });
            }
        };
        if self.options.url_fetch == UrlFetch::Off {
            return Err(ArtifactError::FetchDisabled);
        }
        if let Some(fetch) = &self.fetch {
            fetch.admit(&url, &(self.network)())?;
        }
        let scheme = url.split(':').next().unwrap_or_default();
        let schemes = &self.options.allowed_schemes;
        if !schemes.iter().any(|allowed| allowed.eq_ignore_ascii_case(scheme)) {
            return Err(ArtifactError::scheme_not_allowed(scheme, schemes, ""));
        }
        Ok(url)
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("options", &self.options).finish_non_exhaustive()
    }
}

/// An artifact that was checked and whose source is open: none of its bytes are in the store yet.
#[derive(Debug)]
pub struct Opened(Kind);

#[derive(Debug)]
enum Kind {
    /// There is nothing to take in.
    Url(Box<Artifact>),
    Bytes(Box<Work>, Box<Bytes>),
}

/// Bytes that are to be put into the store.
#[derive(Debug)]
enum Bytes {
    File { file: PlainFile, path: PathBuf, keep: Keep, media: MediaType },
    Content { bytes: bytes::Bytes, content_type: Option<String> },
    Stored { store: Store, digest: Digest, content_type: Option<String>, size: u64 },
}

impl Bytes {
    fn size(&self) -> u64 {
        match self {
            Self::File { file, .. } => file.size(),
            Self::Content { bytes, .. } => bytes.len() as u64,
            Self::Stored { size, .. } => *size,
        }
    }
}

impl Opened {
    /// How many bytes the store takes for it, if it does not have them yet: none for a URL, nor for what lies there.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.0 {
            Kind::Url(_) => 0,
            Kind::Bytes(_, bytes) => bytes.size(),
        }
    }

    /// Whether it is something in the store: a URL is not, before it is fetched.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        matches!(self.0, Kind::Bytes(..))
    }

    /// Puts its bytes into the store. It is not recorded by that.
    ///
    /// # Errors
    /// `Changed`, `Cancelled`, `Store`. Nothing is left then.
    pub async fn take_in(self, cancel: &CancellationToken) -> Result<Artifact, ArtifactError> {
        let (work, bytes) = match self.0 {
            Kind::Url(artifact) => return Ok(*artifact),
            Kind::Bytes(work, bytes) => (work, bytes),
        };
        let call = cancel.child_token();
        let _stopped_with_this_future = call.clone().drop_guard();
        let taken = cancel.run_until_cancelled(blocking(move || work.take(*bytes, &call))).await;
        taken.ok_or(ArtifactError::Cancelled)??
    }
}

/// What can be said without looking at anything.
fn check(registration: &Registration) -> Result<(), ArtifactError> {
    let invalid = |reason| ArtifactError::InvalidRegistration { name: registration.name.clone(), reason };
    let declared = match &registration.source {
        Source::Content { content_type, .. } | Source::Stored { content_type, .. } => content_type.as_ref(),
        Source::File { .. } | Source::Url(_) => None,
    };
    for content_type in registration.content_type.iter().chain(declared) {
        if !is_content_type(content_type) {
            let shown: String = content_type.chars().take(64).flat_map(char::escape_default).collect();
            return Err(invalid(format!("`{shown}` is no media type: write one such as `text/csv`")));
        }
    }
    let metadata = serde_json::to_vec(&registration.metadata).map_or(0, |json| json.len());
    if metadata > MOST_METADATA {
        return Err(invalid(format!(
            "its metadata has {metadata} bytes as JSON, and the most is {MOST_METADATA}"
        )));
    }
    Ok(())
}

/// One artifact that is taken in, on a thread that may block.
#[derive(Debug)]
struct Work {
    options: Arc<ArtifactOptions>,
    store: Store,
    name: ArtifactName,
    /// What the registration says.
    content_type: Option<String>,
    metadata: BTreeMap<String, Value>,
}

impl Work {
    fn open(self, source: Source) -> Result<Opened, ArtifactError> {
        let bytes = match source {
            Source::File { path, keep } => self.open_file(path, keep)?,
            Source::Content { bytes, content_type } => Bytes::Content { bytes, content_type },
            Source::Stored { store, digest, content_type } => {
                let size = if store.root() == self.store.root() { None } else { store.size(&digest)? };
                Bytes::Stored { store, digest, content_type, size: size.unwrap_or(0) }
            }
            // Opened without a thread; here there is nothing to do.
            Source::Url(url) => {
                let content_type = self.content_type.clone().unwrap_or_default();
                let artifact = Artifact::new(self.name, ArtifactSource::Url { url }, content_type, None);
                return Ok(Opened(Kind::Url(Box::new(artifact))));
            }
        };
        let limit = self.options.max_file_size;
        if bytes.size() > limit {
            return Err(self.too_large(limit));
        }
        Ok(Opened(Kind::Bytes(Box::new(self), Box::new(bytes))))
    }

    fn open_file(&self, path: PathBuf, keep: Keep) -> Result<Bytes, ArtifactError> {
        let path = std::path::absolute(&path).unwrap_or(path);
        let file = match &self.options.allowed_dirs {
            None => open_anywhere(&path).map_err(|unopened| self.unopened(unopened))?,
            Some(folders) => self.open_allowed(&path, folders)?,
        };
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let media = self.content_type(None, file_name.as_deref(), || file.head())?;
        Ok(Bytes::File { file, path, keep, media })
    }

    fn take(self, bytes: Bytes, cancel: &CancellationToken) -> Result<Artifact, ArtifactError> {
        let (limit, go_on) = (self.options.max_file_size, || !cancel.is_cancelled());
        match bytes {
            Bytes::File { file, path, keep, media } => {
                let (store, file) = (&self.store, file.into_file().into());
                let inserted = match keep {
                    Keep::Copied => store.insert_open_while(file, &path, Variant::Plain, limit, &go_on),
                    Keep::Frozen => {
                        store.insert_link(file, &path, limit, &go_on).map(|(inserted, _)| inserted)
                    }
                };
                let inserted = inserted.map_err(|error| self.failed(error))?;
                Ok(self.artifact(ArtifactSource::File { path }, media, inserted))
            }
            Bytes::Content { bytes, content_type } => {
                let inserted = self.store.insert_bytes(&bytes, Variant::Plain)?;
                let media = self.content_type(content_type, None, || Ok(head(&bytes).to_vec()))?;
                Ok(self.artifact(ArtifactSource::Content, media, inserted))
            }
            Bytes::Stored { store, digest, content_type, .. } => {
                let inserted = self.store.insert_from(&store, &digest, limit, &go_on);
                let inserted = inserted.map_err(|error| self.failed(error))?;
                let media = self.content_type(content_type, None, || {
                    let content = self.store.get(&digest, Verify::No).map_err(io::Error::other)?;
                    head_of(&content.into_file())
                })?;
                Ok(self.artifact(ArtifactSource::Content, media, inserted))
            }
        }
    }

    /// Opens the file beneath one of the folders that are allowed. What does not lie there is not looked at: whether it exists is
    /// not told.
    fn open_allowed(&self, path: &Path, folders: &[PathBuf]) -> Result<PlainFile, ArtifactError> {
        // As it was named, then as it is resolved: a link may lead there, and the folder may be named by one. The kernel has the
        // last word in both cases.
        let resolved = path.canonicalize().ok().filter(|resolved| resolved != path);
        let mut found = Unallowed::NotBeneath;
        for path in std::iter::once(path).chain(resolved.as_deref()) {
            for folder in folders {
                let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
                let resolved = folder.canonicalize().ok().filter(|resolved| *resolved != folder);
                for folder in std::iter::once(&folder).chain(&resolved) {
                    let Ok(relative) = path.strip_prefix(folder) else { continue };
                    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
                    match Folder::open(folder).and_then(|folder| folder.open_file(relative, Links::Within)) {
                        Ok(file) => return Ok(file),
                        Err(unopened) => found = found.or(unopened),
                    }
                }
            }
        }
        Err(match found {
            Unallowed::NotBeneath => ArtifactError::PathNotAllowed { name: self.name.to_string() },
            Unallowed::Unopened(unopened) => self.unopened(unopened),
        })
    }

    /// The media type: what was declared, else what the names and the bytes say.
    fn content_type(
        &self,
        said: Option<String>,
        file_name: Option<&str>,
        head: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> Result<MediaType, ArtifactError> {
        if let Some(content_type) = self.content_type.clone().or(said) {
            return Ok(declared(content_type));
        }
        let head = head().map_err(|error| ArtifactError::unread(&self.name, &error))?;
        let name = file_name.filter(|name| is_known_name(name)).unwrap_or(self.name.as_str());
        Ok(content_type_of(name, &head).into())
    }

    fn artifact(self, source: ArtifactSource, media: MediaType, inserted: Inserted) -> Artifact {
        let content = ArtifactContent { digest: inserted.digest, size: inserted.size };
        let artifact = Artifact::new(self.name, source, media.content_type, Some(content));
        Artifact { content_type_origin: media.origin, metadata: self.metadata, ..artifact }
    }

    fn too_large(&self, limit: u64) -> ArtifactError {
        ArtifactError::TooLarge { what: format!("the artifact `{}`", self.name), limit }
    }

    fn unopened(&self, unopened: Unopened) -> ArtifactError {
        let name = self.name.to_string();
        match unopened {
            Unopened::NotFound => ArtifactError::FileNotFound { name },
            Unopened::NotPlain => ArtifactError::NotAFile { name },
            Unopened::LeadsOut => ArtifactError::PathTraversal { path: name },
            Unopened::Denied => ArtifactError::PermissionDenied { name },
            Unopened::Failed(error) => ArtifactError::unread(name, &error),
        }
    }

    fn failed(&self, error: StoreError) -> ArtifactError {
        let name = self.name.to_string();
        match error {
            StoreError::Changed { .. } => ArtifactError::Changed { name },
            StoreError::NotPlain { .. } => ArtifactError::NotAFile { name },
            StoreError::TooMuch { limit, .. } => self.too_large(limit),
            StoreError::Stopped { .. } => ArtifactError::Cancelled,
            other => ArtifactError::Store(other),
        }
    }
}

/// A media type, and where it is from.
#[derive(Debug)]
struct MediaType {
    content_type: String,
    origin: ContentTypeOrigin,
}

/// One that was declared.
const fn declared(content_type: String) -> MediaType {
    MediaType { content_type, origin: ContentTypeOrigin::Declared }
}

/// A guess.
impl From<String> for MediaType {
    fn from(content_type: String) -> Self {
        Self { content_type, origin: ContentTypeOrigin::Guessed }
    }
}

/// Why a file was opened beneath none of the folders.
enum Unallowed {
    /// It lies beneath none of them.
    NotBeneath,
    /// Beneath one it could not be opened.
    Unopened(Unopened),
}

impl Unallowed {
    /// The first word counts, unless it was that a path leads out: another way may lead in.
    fn or(self, unopened: Unopened) -> Self {
        match self {
            Self::NotBeneath | Self::Unopened(Unopened::LeadsOut) => Self::Unopened(unopened),
            first => first,
        }
    }
}

/// As many bytes as say what it is.
fn head(bytes: &[u8]) -> &[u8] {
    bytes.get(..HEAD_BYTES).unwrap_or(bytes)
}

/// The last part of a URL's path, which may be the name of a file.
fn name_in(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path)
}

#[cfg(test)]
mod tests;
