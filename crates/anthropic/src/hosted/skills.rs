//! The Skills API: upload, list, delete and download skills and their versions.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use reqwest::Method;

use crate::client_state::ClientState;
use crate::hosted::page::{Items, items, parse};
use crate::hosted::request::{Api, ApiRequest};
use crate::hosted::sync::IndexKey;
use crate::hosted::transfer::multipart::{Form, OnProgress};
use crate::hosted::{
    Download, HostedError, HostedErrorKind, HostedLimits, LATEST, Progress, SkillBundle, SkillId,
    SkillMetadata, SkillSource, VersionId, VersionMetadata,
};
use crate::messages::Client;

/// How often a deletion lists the versions of a skill again, because other clients may add some.
const MAX_DELETE_ROUNDS: u32 = 5;

/// The Skills API under one key. Cheap to clone. It shares the rate limiter and the connections of its [`Client`].
#[derive(Clone)]
pub struct Skills {
    shared: Arc<ClientState>,
    limits: HostedLimits,
}

/// The options of an upload.
#[derive(Clone, Default)]
pub struct Upload {
    title: Option<String>,
    on_progress: Option<OnProgress>,
}

impl Upload {
    /// Creates options without a title. The service then uses the skill's name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title that people see. A version has no title of its own.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
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
    /// The Skills API under this key.
    #[must_use]
    pub fn skills(&self) -> Skills {
        Skills { shared: Arc::clone(self.shared()), limits: HostedLimits::default() }
    }
}

impl Skills {
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

    /// The account that owns these skills.
    pub(in crate::hosted) fn account(&self) -> IndexKey {
        let transport = self.shared.http.transport();
        IndexKey { service: transport.base_url().to_owned(), key: transport.key_digest() }
    }

    /// Uploads a new skill from its directory, its `SKILL.md` or its `.skill` package.
    ///
    /// # Errors
    /// [`HostedError`]. If the skill is invalid or exceeds a limit, nothing was sent. A request that [may have
    /// happened](HostedError::may_have_happened) is not repeated.
    pub async fn upload(
        &self,
        path: impl Into<PathBuf>,
        upload: Upload,
    ) -> Result<SkillMetadata, HostedError> {
        let bundle = self.open(path.into()).await?;
        self.upload_bundle(&bundle, upload).await
    }

    /// Uploads a new skill from an opened bundle.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn upload_bundle(
        &self,
        bundle: &SkillBundle,
        upload: Upload,
    ) -> Result<SkillMetadata, HostedError> {
        let title = match self.shared.profile() {
            crate::ApiProfile::Beta => "display_title",
            crate::ApiProfile::Current => "display_name",
        };
        let form = Form::new(upload.on_progress);
        let form = match &upload.title {
            Some(text) => form.text(title, text),
            None => form,
        };
        let form = bundle.add_to_form(form);
        self.shared
            .json(ApiRequest::new(Api::Skills, Method::POST, vec!["skills"]).with_form(&form), &self.limits)
            .await
    }

    /// Uploads a new version of a skill. The skill's name must be unchanged.
    ///
    /// # Errors
    /// As for [`Skills::upload`].
    pub async fn create_version(
        &self,
        skill: &SkillId,
        path: impl Into<PathBuf>,
        upload: Upload,
    ) -> Result<VersionMetadata, HostedError> {
        let bundle = self.open(path.into()).await?;
        self.create_version_of_bundle(skill, &bundle, upload).await
    }

    /// Uploads a new version of a skill from an opened bundle.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn create_version_of_bundle(
        &self,
        skill: &SkillId,
        bundle: &SkillBundle,
        upload: Upload,
    ) -> Result<VersionMetadata, HostedError> {
        let form = bundle.add_to_form(Form::new(upload.on_progress));
        let path = vec!["skills", skill.as_str(), "versions"];
        self.shared
            .json(ApiRequest::new(Api::Skills, Method::POST, path).with_form(&form), &self.limits)
            .await
    }

    /// Reads and checks a skill on a blocking thread.
    async fn open(&self, path: PathBuf) -> Result<SkillBundle, HostedError> {
        let limits = self.limits;
        let opened = tokio::task::spawn_blocking(move || SkillBundle::open(path, &limits)).await;
        opened.unwrap_or_else(|_| {
            Err(HostedError::new(HostedErrorKind::InvalidSkill, "the reader of the skill has crashed"))
        })
    }

    /// All skills from this source, fetched page by page. `None` lists the skills from all sources.
    #[must_use]
    pub fn list(&self, source: Option<SkillSource>) -> Items<SkillMetadata> {
        let skills = self.clone();
        items(move |at| {
            let (skills, source) = (skills.clone(), source.clone());
            Box::pin(async move {
                let source = source.map(|source| ("source", source.as_wire().to_owned()));
                let request = ApiRequest::get(Api::Skills, vec!["skills"]);
                let request = request.with_query(at.map(|at| ("page", at))).with_query(source);
                skills.shared.record(request, &skills.limits, parse).await
            })
        })
    }

    /// The metadata of a skill.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn get(&self, skill: &SkillId) -> Result<SkillMetadata, HostedError> {
        self.shared.json(ApiRequest::get(Api::Skills, vec!["skills", skill.as_str()]), &self.limits).await
    }

    /// Deletes a skill that has no versions. The service refuses to delete a skill that has some. See [`Skills::delete_with_versions`].
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn delete(&self, skill: &SkillId) -> Result<(), HostedError> {
        let request = ApiRequest::new(Api::Skills, Method::DELETE, vec!["skills", skill.as_str()]);
        self.shared.delete(request, &self.limits).await
    }

    /// Deletes all versions of a skill, and then the skill. A version that another client deletes meanwhile counts as deleted. After a
    /// failure, the next call deletes the rest.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn delete_with_versions(&self, skill: &SkillId) -> Result<(), HostedError> {
        for _ in 0..MAX_DELETE_ROUNDS {
            let versions: Vec<VersionMetadata> = self.versions(skill).try_collect().await?;
            if versions.is_empty() {
                break;
            }
            for version in versions {
                match self.delete_version(skill, &version.id).await {
                    Err(error) if error.kind() == HostedErrorKind::NotFound => {}
                    other => other?,
                }
            }
        }
        self.delete(skill).await
    }

    /// All versions of a skill, fetched page by page.
    #[must_use]
    pub fn versions(&self, skill: &SkillId) -> Items<VersionMetadata> {
        let (skills, skill) = (self.clone(), skill.clone());
        items(move |at| {
            let (skills, skill) = (skills.clone(), skill.clone());
            Box::pin(async move {
                let request = ApiRequest::get(Api::Skills, vec!["skills", skill.as_str(), "versions"]);
                let request = request.with_query(at.map(|at| ("page", at)));
                skills.shared.record(request, &skills.limits, parse).await
            })
        })
    }

    /// The metadata of a version; [`LATEST`] is the newest one.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn version(
        &self,
        skill: &SkillId,
        version: &VersionId,
    ) -> Result<VersionMetadata, HostedError> {
        if version.as_str() == LATEST {
            return self.newest(skill).await;
        }
        let path = vec!["skills", skill.as_str(), "versions", version.as_str()];
        self.shared.json(ApiRequest::get(Api::Skills, path), &self.limits).await
    }

    /// Deletes a version. [`LATEST`] is the version that is newest now.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn delete_version(&self, skill: &SkillId, version: &VersionId) -> Result<(), HostedError> {
        let version = self.resolved(skill, version).await?;
        let path = vec!["skills", skill.as_str(), "versions", version.as_str()];
        self.shared.delete(ApiRequest::new(Api::Skills, Method::DELETE, path), &self.limits).await
    }

    /// The files of a version as a ZIP archive; [`LATEST`] is the newest one.
    ///
    /// # Errors
    /// [`HostedError`].
    pub async fn download_version(
        &self,
        skill: &SkillId,
        version: &VersionId,
    ) -> Result<Download, HostedError> {
        let version = self.resolved(skill, version).await?;
        let path = vec!["skills", skill.as_str(), "versions", version.as_str(), "content"];
        let response = self.shared.content(ApiRequest::get(Api::Skills, path), &self.limits).await?;
        Ok(Download::new(Arc::clone(&self.shared), response, &self.limits, None))
    }

    /// Resolves [`LATEST`], which is not valid in paths.
    async fn resolved(&self, skill: &SkillId, version: &VersionId) -> Result<VersionId, HostedError> {
        if version.as_str() == LATEST {
            return self.newest(skill).await.map(|version| version.id);
        }
        Ok(version.clone())
    }

    /// The newest version of a skill.
    async fn newest(&self, skill: &SkillId) -> Result<VersionMetadata, HostedError> {
        let versions: Vec<VersionMetadata> = self.versions(skill).try_collect().await?;
        versions.into_iter().max_by_key(age).ok_or_else(|| {
            HostedError::new(HostedErrorKind::NotFound, format!("the skill `{skill}` has no versions"))
        })
    }
}

/// The sort key of versions: the number, which is a time, or else the creation time. Both sort correctly as texts of equal length.
fn age(version: &VersionMetadata) -> (Option<u128>, String) {
    (version.id.as_str().parse().ok(), version.created_at.clone())
}

impl std::fmt::Debug for Skills {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Skills").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("title", &self.title).finish_non_exhaustive()
    }
}
