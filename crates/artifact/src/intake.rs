//! Taking in what a session is given: checked, its bytes in the tenant's store (ADR-0018, sections 2 and 8).
//!
//! A file is opened once, without waiting, and beneath one of the folders that the host allows where it names some: what was checked is
//! what is read. It streams into the store by pieces; a call that is dropped or called off stops at the next one and leaves nothing.
//! A URL is checked and not fetched. It owns no state: what was stored and is not recorded is garbage of its store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_conversation::{Artifact, ArtifactContent, ArtifactName, ArtifactSource, ContentTypeOrigin};
use conjure_store::{Inserted, Store, StoreError, Variant, Verify};
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::error::ArtifactError;
use crate::fetch::Fetch;
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
}

impl Intake {
    /// By these options.
    #[must_use]
    pub const fn new(options: Arc<ArtifactOptions>) -> Self {
        Self { options, fetch: None }
    }

    /// The same, asking who fetches which URLs it would ([`Fetch::admit`]).
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// Checks an artifact and puts its bytes into the store. It is not recorded by that.
    ///
    /// # Errors
    /// `InvalidRegistration` (metadata, media type), `FileNotFound`, `NotAFile`, `PermissionDenied`, `PathNotAllowed`,
    /// `PathTraversal`, `TooLarge`, `Changed`, `Cancelled`, `Store`; of a URL `InvalidUri`, `SchemeNotAllowed`, `HostBlocked`,
    /// `FetchDisabled`.
    pub async fn take_in(
        &self,
        registration: Registration,
        store: &Store,
        cancel: &CancellationToken,
    ) -> Result<Artifact, ArtifactError> {
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
            return Ok(Artifact { metadata, content_type_origin: origin, ..artifact });
        }
        let call = cancel.child_token();
        let _stopped_with_this_future = call.clone().drop_guard();
        let work = Work {
            options: Arc::clone(&self.options),
            store: store.clone(),
            name,
            content_type,
            cancel: call,
        };
        let taken = cancel.run_until_cancelled(blocking(move || work.take(source))).await;
        let artifact = taken.ok_or(ArtifactError::Cancelled)???;
        Ok(Artifact { metadata, ..artifact })
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
            fetch.admit(&url)?;
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
struct Work {
    options: Arc<ArtifactOptions>,
    store: Store,
    name: ArtifactName,
    /// What the registration says.
    content_type: Option<String>,
    cancel: CancellationToken,
}

impl Work {
    fn take(self, source: Source) -> Result<Artifact, ArtifactError> {
        match source {
            Source::File { path, keep } => self.file(path, keep),
            Source::Content { bytes, content_type } => {
                let limit = self.options.max_file_size;
                if bytes.len() as u64 > limit {
                    return Err(self.too_large(limit));
                }
                let inserted = self.store.insert_bytes(&bytes, Variant::Plain)?;
                let content_type = self.content_type(content_type, None, || Ok(head(&bytes).to_vec()))?;
                Ok(self.artifact(ArtifactSource::Content, content_type, inserted))
            }
            Source::Stored { store, digest, content_type } => {
                let (limit, go_on) = (self.options.max_file_size, || !self.cancel.is_cancelled());
                let inserted = self.store.insert_from(&store, &digest, limit, &go_on);
                let inserted = inserted.map_err(|error| self.failed(error))?;
                let content_type = self.content_type(content_type, None, || {
                    let content = self.store.get(&digest, Verify::No).map_err(io::Error::other)?;
                    head_of(&content.into_file())
                })?;
                Ok(self.artifact(ArtifactSource::Content, content_type, inserted))
            }
            // Taken in without a thread; here there is nothing to do.
            Source::Url(url) => {
                let content_type = self.content_type.clone().unwrap_or_default();
                Ok(Artifact::new(self.name, ArtifactSource::Url { url }, content_type, None))
            }
        }
    }

    fn file(self, path: PathBuf, keep: Keep) -> Result<Artifact, ArtifactError> {
        let path = std::path::absolute(&path).unwrap_or(path);
        let file = match &self.options.allowed_dirs {
            None => open_anywhere(&path).map_err(|unopened| self.unopened(unopened))?,
            Some(folders) => self.open_allowed(&path, folders)?,
        };
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let content_type = self.content_type(None, file_name.as_deref(), || file.head())?;
        let (limit, go_on) = (self.options.max_file_size, || !self.cancel.is_cancelled());
        let file = file.into_file().into();
        let inserted = match keep {
            Keep::Copied => self.store.insert_open_while(file, &path, Variant::Plain, limit, &go_on),
            Keep::Frozen => self.store.insert_link(file, &path, limit, &go_on).map(|(inserted, _)| inserted),
        };
        let inserted = inserted.map_err(|error| self.failed(error))?;
        Ok(self.artifact(ArtifactSource::File { path }, content_type, inserted))
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
        Artifact { content_type_origin: media.origin, ..artifact }
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
