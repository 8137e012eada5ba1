//! From a reference to what it stands for (ADR-0018, section 3).
//!
//! A [`Resolver`] is of one tenant: its store, its fetches, its sessions' skills. What a session's artifacts are is told with each
//! call, so one moment of the session is seen whole. Files of skills are opened beneath the skill's folder; contents are found in
//! the store; URLs are asked of [`Fetch`] each time, which knows by itself how long an answer holds. It owns no state, and a crash or a
//! dropped future leaves nothing but what a fetch has stored and nobody recorded.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::{Deadline, TenantId};
use conjure_conversation::{Artifact, ArtifactContent, ArtifactName, ArtifactSource, FetchedArtifact};
use conjure_egress::Policy;
use conjure_skill::{Skill, SkillName};
use conjure_store::{Store, StoreError, Verify};
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::content::stream_of;
use crate::error::ArtifactError;
use crate::fetch::{Fetch, FetchRequest, Fetched, NetworkOf, whole_network};
use crate::media::content_type_of;
use crate::options::{ArtifactOptions, UrlFetch};
use crate::output::OutputContent;
use crate::plain::{Folder, Links, PlainFile, Unopened};
use crate::uri::{ArtifactUri, SkillPath};

/// How many names an error lists.
const LISTED: usize = 20;

/// Finds what references stand for. Clones are the same, and cheap.
#[derive(Clone)]
pub struct Resolver {
    tenant: TenantId,
    store: Store,
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
    cache_quota: Arc<CacheQuota>,
    network: Arc<NetworkOf>,
    skills: Arc<[Arc<Skill>]>,
}

/// Says how many bytes may be kept for the tenant just now.
type CacheQuota = dyn Fn() -> u64 + Send + Sync;

/// What a reference stands for.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The reference.
    pub uri: ArtifactUri,
    /// Where the bytes are.
    pub place: ResolvedPlace,
    /// Their media type.
    pub content_type: String,
    /// How many.
    pub size: u64,
    /// What an artifact's URL led to, where that is not what the session has recorded of it: it is to be recorded.
    pub fetched: Option<FetchedArtifact>,
}

/// Where the bytes of something are.
#[derive(Debug, Clone)]
pub enum ResolvedPlace {
    /// A file of a skill.
    SkillFile {
        /// The skill.
        skill: Arc<Skill>,
        /// Where in its folder.
        path: PathBuf,
    },
    /// In the tenant's store.
    Stored {
        /// Under which name a sandbox gets it.
        name: ArtifactName,
        /// What.
        content: ArtifactContent,
    },
}

impl Resolver {
    /// A resolver over a tenant's store, which fetches nothing and knows no skills.
    #[must_use]
    pub fn new(tenant: TenantId, store: Store, options: Arc<ArtifactOptions>) -> Self {
        let cache_quota = Arc::new(|| u64::MAX);
        Self {
            tenant,
            store,
            options,
            fetch: None,
            cache_quota,
            network: whole_network(),
            skills: Arc::default(),
        }
    }

    /// The same, fetching URLs, unless the options say that none are.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// The same, for a tenant of which no more bytes than this are kept of what was fetched ([`FetchRequest::cache_bytes`]). It is asked at
    /// each fetch.
    #[must_use]
    pub fn with_cache_quota(self, most: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { cache_quota: Arc::new(most), ..self }
    }

    /// The same, for a tenant that reaches no more of the network than this ([`FetchRequest::network`]). It is asked at each fetch.
    #[must_use]
    pub fn with_network(self, network: impl Fn() -> Policy + Send + Sync + 'static) -> Self {
        Self { network: Arc::new(network), ..self }
    }

    /// The same with these skills.
    #[must_use]
    pub fn with_skills(self, skills: impl Into<Arc<[Arc<Skill>]>>) -> Self {
        Self { skills: skills.into(), ..self }
    }

    /// Whose it is.
    #[must_use]
    pub const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Where the contents lie.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// What the host permits.
    #[must_use]
    pub const fn options(&self) -> &Arc<ArtifactOptions> {
        &self.options
    }

    /// Whether URLs are fetched: something fetches, the options allow it, and the tenant reaches something.
    #[must_use]
    pub fn url_fetch(&self) -> UrlFetch {
        let is_possible = self.fetch.is_some() && (self.network)() != Policy::None;
        if is_possible { self.options.url_fetch } else { UrlFetch::Off }
    }

    /// The skills whose files can be named.
    #[must_use]
    pub const fn skills(&self) -> &Arc<[Arc<Skill>]> {
        &self.skills
    }

    /// Finds what a reference stands for, in a session that has these artifacts. A URL is fetched, if what was fetched before is not
    /// good any more.
    ///
    /// # Errors
    /// `SkillNotFound`, `AssetNotFound`, `ArtifactNotFound`, `PathTraversal`, `NotAFile`, `PermissionDenied`, `Store` when a content
    /// is not there any more, `Cancelled`, and what [`Fetch::fetch`] says; `FetchDisabled` where nothing fetches.
    pub async fn resolve(
        &self,
        uri: &ArtifactUri,
        artifacts: &[Arc<Artifact>],
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<Resolved, ArtifactError> {
        match uri {
            ArtifactUri::Skill { skill, path } => self.skill_file(uri, skill, path, cancel).await,
            ArtifactUri::File { name } => {
                let artifact = artifacts.iter().find(|artifact| artifact.name == *name);
                let artifact = artifact.ok_or_else(|| ArtifactError::ArtifactNotFound {
                    name: name.to_string(),
                    known: list(artifacts.iter().map(|artifact| artifact.name.as_str())),
                })?;
                self.artifact(uri, artifact, deadline, cancel).await
            }
            ArtifactUri::Url(url) => {
                let fetched = self.fetch(url, deadline, cancel).await?;
                let name = name_of_fetched(&fetched)?;
                Ok(Resolved {
                    uri: uri.clone(),
                    size: fetched.content.size,
                    place: ResolvedPlace::Stored { name, content: fetched.content },
                    content_type: fetched.content_type,
                    fetched: None,
                })
            }
        }
    }

    /// Opens what was resolved.
    ///
    /// # Errors
    /// As for [`Self::resolve`], when it is not there any more.
    pub async fn open(&self, resolved: &Resolved) -> Result<OutputContent, ArtifactError> {
        let resolved = resolved.clone();
        let store = self.store.clone();
        blocking(move || {
            let (name, file) = match &resolved.place {
                ResolvedPlace::Stored { name, content } => {
                    (name.to_string(), store.get(&content.digest, Verify::No)?.into_file())
                }
                ResolvedPlace::SkillFile { skill, path } => {
                    let file = open_in_skill(skill, path, &resolved.uri)?;
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    (name, file.into_file())
                }
            };
            let stat = rustix::fs::fstat(&file)
                .map_err(|errno| ArtifactError::unread(&resolved.uri, &errno.into()))?;
            let size = u64::try_from(stat.st_size).ok();
            let content_type = resolved.content_type;
            Ok(OutputContent { stream: stream_of(file, stat, name.clone()), name, content_type, size })
        })
        .await?
    }

    /// Where a content that something was resolved to lies on the host: for reading alone, and as long as nobody removes it.
    ///
    /// # Errors
    /// `Store` when it is not there any more.
    pub async fn path_of(&self, content: &ArtifactContent) -> Result<PathBuf, ArtifactError> {
        let (store, digest) = (self.store.clone(), content.digest);
        let found = blocking(move || store.path(&digest)).await??;
        found.ok_or(ArtifactError::Store(StoreError::Absent { digest }))
    }

    async fn skill_file(
        &self,
        uri: &ArtifactUri,
        name: &str,
        path: &SkillPath,
        cancel: &CancellationToken,
    ) -> Result<Resolved, ArtifactError> {
        // Names of skills are in Unicode's NFKC form.
        let wanted = SkillName::lenient(name).ok().map(|(name, _)| name);
        let skill = self.skills.iter().find(|skill| wanted.as_ref() == Some(skill.name()));
        let skill = skill.ok_or_else(|| ArtifactError::SkillNotFound {
            skill: name.to_owned(),
            known: list(self.skills.iter().map(|skill| skill.name().as_str())),
        })?;
        let (skill, path, uri) = (Arc::clone(skill), path.as_path().to_owned(), uri.clone());
        let open = blocking(move || {
            let file = open_in_skill(&skill, &path, &uri)?;
            let head = file.head().map_err(|error| ArtifactError::unread(&uri, &error))?;
            let content_type = content_type_of(&path.to_string_lossy(), &head);
            let size = file.size();
            let place = ResolvedPlace::SkillFile { skill, path };
            Ok(Resolved { uri, place, content_type, size, fetched: None })
        });
        cancel.run_until_cancelled(open).await.ok_or(ArtifactError::Cancelled)??
    }

    async fn artifact(
        &self,
        uri: &ArtifactUri,
        artifact: &Artifact,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<Resolved, ArtifactError> {
        let name = artifact.name.clone();
        let resolved = |content: ArtifactContent, content_type: String, fetched| Resolved {
            uri: uri.clone(),
            size: content.size,
            place: ResolvedPlace::Stored { name: artifact.name.clone(), content },
            content_type,
            fetched,
        };
        if let ArtifactSource::Url { url } = &artifact.source {
            let Fetched { content, content_type, .. } = self.fetch(url, deadline, cancel).await?;
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
        let look = blocking(move || store.size(&digest));
        let found = cancel.run_until_cancelled(look).await.ok_or(ArtifactError::Cancelled)??;
        found?.ok_or(StoreError::Absent { digest })?;
        Ok(resolved(content, artifact.content_type.clone(), None))
    }

    async fn fetch(
        &self,
        url: &str,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<Fetched, ArtifactError> {
        let Some(fetch) = self.fetch.as_ref().filter(|_| self.options.url_fetch == UrlFetch::On) else {
            return Err(ArtifactError::FetchDisabled);
        };
        let cancel = cancel.child_token();
        let (tenant, store, cache_bytes) = (&self.tenant, &self.store, (self.cache_quota)());
        let network = &(self.network)();
        fetch.fetch(FetchRequest { url, tenant, store, cache_bytes, network, deadline, cancel }).await
    }
}

/// Without the skills and the options.
impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Under which name a sandbox gets what a bare URL led to: the same for the same content and file name, and another for another.
fn name_of_fetched(fetched: &Fetched) -> Result<ArtifactName, ArtifactError> {
    let digest = fetched.content.digest.to_hex();
    let front = format!("url-{}-", digest.get(..8).unwrap_or(&digest));
    let mut name = fetched.name.as_str();
    while front.len() + name.len() > ArtifactName::MOST_BYTES {
        // The end of a name says what it is.
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
) -> Result<PlainFile, ArtifactError> {
    let opened = Folder::open(skill.root_dir()).and_then(|folder| folder.open_file(path, Links::Within));
    opened.map_err(|unopened| {
        let shown = path.to_string_lossy().into_owned();
        match unopened {
            Unopened::NotFound => {
                ArtifactError::AssetNotFound { skill: skill.name().to_string(), path: shown }
            }
            Unopened::LeadsOut => ArtifactError::PathTraversal { path: shown },
            Unopened::NotPlain => ArtifactError::NotAFile { name: uri.to_string() },
            Unopened::Denied => ArtifactError::PermissionDenied { name: uri.to_string() },
            Unopened::Failed(error) => ArtifactError::unread(uri, &error),
        }
    })
}

/// Names for an error, in their order, not all of very many.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".to_owned(),
        all if all > LISTED => format!("{} and {} more", shown.join(", "), all - LISTED),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests;
