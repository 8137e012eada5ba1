//! Resolves artifact references to content (ADR-0018, section 3).
//!
//! A [`ReferenceResolver`] belongs to one tenant. The session's artifacts are passed with each call, as a consistent snapshot. Skill
//! files are opened beneath the skill's directory, other content is read from the store, and URLs go through [`Fetch`], which has its
//! own cache. The resolver has no state of its own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::{Deadline, TenantId};
use conjure_conversation::{Artifact, ArtifactContent, ArtifactName, ArtifactSource, FetchedArtifact};
use conjure_egress::EgressPolicy;
use conjure_fs::{DirHandle, Links, OpenError, RegularFile, read_head, run_blocking};
use conjure_skill::{Skill, SkillName};
use conjure_store::{Store, StoreError, Verify};
use tokio_util::sync::CancellationToken;

use crate::error::ArtifactError;
use crate::fetch::{Fetch, FetchRequest, FetchedContent, NetworkPolicyFn, full_network};
use crate::file_stream::stream_file;
use crate::media::{HEAD_BYTES, content_type_of};
use crate::options::{ArtifactOptions, UrlFetch};
use crate::output::OutputContent;
use crate::uri::{ArtifactUri, SkillPath};

/// The maximum number of names that an error lists.
const MAX_LISTED_NAMES: usize = 20;

/// Resolves artifact references. Cheap to clone.
#[derive(Clone)]
pub struct ReferenceResolver {
    tenant: TenantId,
    store: Store,
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
    network: Arc<NetworkPolicyFn>,
    skills: Arc<[Arc<Skill>]>,
}

/// A resolved reference.
#[derive(Debug, Clone)]
pub struct ResolvedReference {
    /// The reference.
    pub uri: ArtifactUri,
    /// The location of the bytes.
    pub location: ResolvedLocation,
    /// The media type.
    pub content_type: String,
    /// The size in bytes.
    pub size: u64,
    /// The content of an artifact's URL, if it differs from what the session has recorded. The caller records it.
    pub newly_fetched: Option<FetchedArtifact>,
}

/// The location of resolved content.
#[derive(Debug, Clone)]
pub enum ResolvedLocation {
    /// A file of a skill.
    SkillFile {
        /// The skill.
        skill: Arc<Skill>,
        /// The path in the skill's directory.
        path: PathBuf,
    },
    /// In the tenant's store.
    Stored {
        /// The name for a sandbox.
        name: ArtifactName,
        /// The content.
        content: ArtifactContent,
    },
}

impl ReferenceResolver {
    /// Creates a resolver over a tenant's store. It fetches nothing and knows no skills.
    #[must_use]
    pub fn new(tenant: TenantId, store: Store, options: Arc<ArtifactOptions>) -> Self {
        Self { tenant, store, options, fetch: None, network: full_network(), skills: Arc::default() }
    }

    /// Sets the fetcher. URLs are fetched unless the options forbid it.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// Sets the tenant's network policy ([`FetchRequest::network`]). `network` is called at each fetch.
    #[must_use]
    pub fn with_network(self, network: impl Fn() -> EgressPolicy + Send + Sync + 'static) -> Self {
        Self { network: Arc::new(network), ..self }
    }

    /// Sets the session's skills.
    #[must_use]
    pub fn with_skills(self, skills: impl Into<Arc<[Arc<Skill>]>>) -> Self {
        Self { skills: skills.into(), ..self }
    }

    /// The tenant.
    #[must_use]
    pub const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The store of the contents.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> &Arc<ArtifactOptions> {
        &self.options
    }

    /// Whether URLs are fetched: there is a fetcher, the options allow it, and so does the tenant's network policy.
    #[must_use]
    pub fn url_fetch(&self) -> UrlFetch {
        let is_possible = self.fetch.is_some() && (self.network)() != EgressPolicy::None;
        if is_possible { self.options.url_fetch } else { UrlFetch::Off }
    }

    /// The skills whose files can be referenced.
    #[must_use]
    pub const fn skills(&self) -> &Arc<[Arc<Skill>]> {
        &self.skills
    }

    /// Resolves a reference for a session with these artifacts. A URL is fetched, unless cached content is fresh.
    ///
    /// # Errors
    /// `SkillNotFound`, `AssetNotFound`, `ArtifactNotFound`, `PathTraversal`, `NotAFile`, `PermissionDenied`, `Store` when content
    /// is missing, `Cancelled`, and the errors of [`Fetch::fetch`]; `FetchDisabled` without a fetcher.
    pub async fn resolve(
        &self,
        uri: &ArtifactUri,
        artifacts: &[Arc<Artifact>],
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<ResolvedReference, ArtifactError> {
        match uri {
            ArtifactUri::Skill { skill, path } => self.resolve_skill_file(uri, skill, path, cancel).await,
            ArtifactUri::File { name } => {
                let artifact = artifacts.iter().find(|artifact| artifact.name == *name);
                let artifact = artifact.ok_or_else(|| ArtifactError::ArtifactNotFound {
                    name: name.to_string(),
                    known: list_names(artifacts.iter().map(|artifact| artifact.name.as_str())),
                })?;
                self.resolve_artifact(uri, artifact, deadline, cancel).await
            }
            ArtifactUri::Url(url) => {
                let fetched = self.fetch(url, deadline, cancel).await?;
                let name = name_for_fetched(&fetched)?;
                Ok(ResolvedReference {
                    uri: uri.clone(),
                    size: fetched.content.size,
                    location: ResolvedLocation::Stored { name, content: fetched.content },
                    content_type: fetched.content_type,
                    newly_fetched: None,
                })
            }
        }
    }

    /// Opens resolved content.
    ///
    /// # Errors
    /// As for [`Self::resolve`], when it was removed meanwhile.
    pub async fn open(&self, resolved: &ResolvedReference) -> Result<OutputContent, ArtifactError> {
        let resolved = resolved.clone();
        let store = self.store.clone();
        run_blocking(move || {
            let (name, file) = match &resolved.location {
                ResolvedLocation::Stored { name, content } => {
                    let file = store.get(&content.digest, Verify::No)?.into_file();
                    (
                        name.to_string(),
                        RegularFile::from_open(file.into()).map_err(|error| ArtifactError::Unreadable {
                            what: resolved.uri.to_string(),
                            reason: error.to_string(),
                        })?,
                    )
                }
                ResolvedLocation::SkillFile { skill, path } => {
                    let file = open_in_skill(skill, path, &resolved.uri)?;
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    (name, file)
                }
            };
            let size = Some(file.size());
            let content_type = resolved.content_type;
            Ok(OutputContent { stream: stream_file(file, name.clone()), name, content_type, size })
        })
        .await?
    }

    /// The path of stored content on this machine. It is read-only, and valid until the content is removed.
    ///
    /// # Errors
    /// `Store` when it was removed.
    pub async fn content_path(&self, content: &ArtifactContent) -> Result<PathBuf, ArtifactError> {
        let (store, digest) = (self.store.clone(), content.digest);
        let found = run_blocking(move || store.path(&digest)).await??;
        found.ok_or(ArtifactError::Store(StoreError::NotFound { digest }))
    }

    async fn resolve_skill_file(
        &self,
        uri: &ArtifactUri,
        name: &str,
        path: &SkillPath,
        cancel: &CancellationToken,
    ) -> Result<ResolvedReference, ArtifactError> {
        // Skill names are in NFKC form.
        let skill_name = SkillName::lenient(name).ok().map(|(name, _)| name);
        let skill = self.skills.iter().find(|skill| skill_name.as_ref() == Some(skill.name()));
        let skill = skill.ok_or_else(|| ArtifactError::SkillNotFound {
            skill: name.to_owned(),
            known: list_names(self.skills.iter().map(|skill| skill.name().as_str())),
        })?;
        let (skill, path, uri) = (Arc::clone(skill), path.as_path().to_owned(), uri.clone());
        let open = run_blocking(move || {
            let file = open_in_skill(&skill, &path, &uri)?;
            let head =
                read_head(file.file(), HEAD_BYTES).map_err(|error| ArtifactError::unread(&uri, &error))?;
            let content_type = content_type_of(&path.to_string_lossy(), &head);
            let size = file.size();
            let location = ResolvedLocation::SkillFile { skill, path };
            Ok(ResolvedReference { uri, location, content_type, size, newly_fetched: None })
        });
        cancel.run_until_cancelled(open).await.ok_or(ArtifactError::Cancelled)??
    }

    async fn resolve_artifact(
        &self,
        uri: &ArtifactUri,
        artifact: &Artifact,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<ResolvedReference, ArtifactError> {
        let name = artifact.name.clone();
        let resolved = |content: ArtifactContent, content_type: String, fetched| ResolvedReference {
            uri: uri.clone(),
            size: content.size,
            location: ResolvedLocation::Stored { name: artifact.name.clone(), content },
            content_type,
            newly_fetched: fetched,
        };
        if let ArtifactSource::Url { url } = &artifact.source {
            let FetchedContent { content, content_type, .. } = self.fetch(url, deadline, cancel).await?;
            let content_type = artifact.content_type_of_fetched(&content_type).to_owned();
            let is_recorded =
                artifact.content.as_ref() == Some(&content) && artifact.content_type == content_type;
            let fetched = (!is_recorded).then(|| FetchedArtifact {
                name,
                url: url.clone(),
                content_type: content_type.clone(),
                content: content.clone(),
            });
            return Ok(resolved(content, content_type, fetched));
        }
        let Some(content) = artifact.content.clone() else {
            return Err(ArtifactError::FileNotFound { name: name.to_string() });
        };
        let (store, digest) = (self.store.clone(), content.digest);
        let stat = run_blocking(move || store.size(&digest));
        let found = cancel.run_until_cancelled(stat).await.ok_or(ArtifactError::Cancelled)??;
        found?.ok_or(StoreError::NotFound { digest })?;
        Ok(resolved(content, artifact.content_type.clone(), None))
    }

    async fn fetch(
        &self,
        url: &str,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<FetchedContent, ArtifactError> {
        let Some(fetch) = self.fetch.as_ref().filter(|_| self.options.url_fetch == UrlFetch::On) else {
            return Err(ArtifactError::FetchDisabled);
        };
        let cancel = cancel.child_token();
        let (tenant, store) = (&self.tenant, &self.store);
        let network = &(self.network)();
        fetch.fetch(FetchRequest { url, tenant, store, network, deadline, cancel }).await
    }
}

/// Omits skills and options.
impl fmt::Debug for ReferenceResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// The sandbox name for the content of a bare URL. Equal content and file name give the same name.
fn name_for_fetched(fetched: &FetchedContent) -> Result<ArtifactName, ArtifactError> {
    let digest = fetched.content.digest.to_hex();
    let front = format!("url-{}-", digest.get(..8).unwrap_or(&digest));
    let mut name = fetched.name.as_str();
    while front.len() + name.len() > ArtifactName::MAX_BYTES {
        // Shortened from the front, because the end holds the extension.
        let mut characters = name.chars();
        characters.next();
        name = characters.as_str();
    }
    Ok(ArtifactName::new(format!("{front}{name}"))
        .or_else(|_| ArtifactName::new(format!("{front}content")))?)
}

fn open_in_skill(
    skill: &Skill,
    path: &std::path::Path,
    uri: &ArtifactUri,
) -> Result<RegularFile, ArtifactError> {
    let opened = DirHandle::open(skill.root_dir())
        .map_err(OpenError::from)
        .and_then(|dir| dir.open_file(path, Links::Followed));
    opened.map_err(|unopened| {
        let path_text = path.to_string_lossy().into_owned();
        match unopened {
            OpenError::NotFound(_) => {
                ArtifactError::AssetNotFound { skill: skill.name().to_string(), path: path_text }
            }
            OpenError::EscapesRoot => ArtifactError::PathTraversal { path: path_text },
            OpenError::NotRegular | OpenError::Link => ArtifactError::NotAFile { name: uri.to_string() },
            OpenError::PermissionDenied(_) => ArtifactError::PermissionDenied { name: uri.to_string() },
            OpenError::Failed(errno) => ArtifactError::unread(uri, &errno.into()),
        }
    })
}

/// Lists names for an error, sorted, at most [`MAX_LISTED_NAMES`].
fn list_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let quoted: Vec<String> = names.iter().take(MAX_LISTED_NAMES).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".to_owned(),
        all if all > MAX_LISTED_NAMES => format!("{} and {} more", quoted.join(", "), all - MAX_LISTED_NAMES),
        _ => quoted.join(", "),
    }
}

#[cfg(test)]
mod tests;
