//! [`SkillSync`]: plans and runs a push.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::Digest;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::error::{SkillFailure, SyncError};
use super::local_skills;
use super::report::{
    MissingLocally, PlannedAction, PlannedSkill, PushResult, SyncEvent, SyncPlan, SyncReport, SyncedSkill,
};
use crate::hosted::bundle::digest_of_archive;
use crate::hosted::sync::local_skills::{LocalSkill, LocalSkills, UploadCandidate};
use crate::hosted::sync::plan::{Decision, Match, absent, decide};
use crate::hosted::sync::upload_index::{IndexKey, LockedIndex, UploadIndex, UploadedSkill, UploadedSkills};
use crate::hosted::{
    HostedError, HostedErrorKind, LATEST, SkillId, SkillMetadata, SkillSource, Skills, Upload, VersionId,
    VersionMetadata,
};

/// The default number of skills that are uploaded or compared at a time.
const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// How many bytes an archive may be larger than its files.
const ARCHIVE_OVERHEAD: u64 = 16 << 20;

type OnEvent = Arc<dyn Fn(&SyncEvent<'_>) + Send + Sync>;

/// Synchronises directories of skills with the service, under one key.
///
/// ```
/// # #[cfg(feature = "fake")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use conjure_anthropic::hosted::{PushResult, SkillSync};
/// use conjure_anthropic::{Client, Config, fake::FakeMessages};
///
/// let service = FakeMessages::builder().start().await?;
/// let client = Client::new(&Config::new("sk-1".into()).with_base_url(service.base_url()))?;
///
/// let temp = tempfile::tempdir()?;
/// let directory = temp.path().join("skills/greeting");
/// std::fs::create_dir_all(&directory)?;
/// std::fs::write(directory.join("SKILL.md"), "---\nname: greeting\ndescription: Says hello\n---\nSay hello.\n")?;
///
/// // Uploads are recorded in `temp/hosted/skills.json`.
/// let sync = SkillSync::new(client.skills(), temp.path().join("hosted"));
/// let report = sync.push(temp.path().join("skills")).await?;
/// assert!(matches!(report.skills[0].result(), Ok(PushResult::Created { .. })));
///
/// let again = sync.push(temp.path().join("skills")).await?;
/// assert!(matches!(again.skills[0].result(), Ok(PushResult::Unchanged { .. })));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "fake"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct SkillSync {
    skills: Skills,
    account: IndexKey,
    upload_index: UploadIndex,
    concurrency: NonZeroUsize,
    on_event: OnEvent,
}

/// A deleted skill.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deleted {
    /// The skill.
    pub skill: SkillId,
    /// Its title.
    pub title: Option<String>,
    /// The number of its versions.
    pub versions: usize,
}

/// The result of deleting a forgotten skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetOutcome {
    /// The service does not have the skill any more.
    Deleted,
    /// The skill was pushed again meanwhile, so it stays.
    Remembered,
}

/// The result of comparing a version with local files.
enum Comparison {
    Same,
    Different,
    /// The service does not return the files.
    Unknown,
}

impl SkillSync {
    /// Creates it with this client and the index in `dir`, for example `<data>/hosted`. The first push creates the directory. One index
    /// serves any number of keys and services.
    pub fn new(skills: Skills, dir: impl Into<PathBuf>) -> Self {
        let account = skills.account();
        Self {
            skills,
            account,
            upload_index: UploadIndex::new(dir.into()),
            concurrency: DEFAULT_CONCURRENCY,
            on_event: Arc::new(|_| {}),
        }
    }

    /// Sets how many skills are uploaded or compared at a time. 4 by default.
    #[must_use]
    pub const fn with_concurrency(mut self, at_a_time: NonZeroUsize) -> Self {
        self.concurrency = at_a_time;
        self
    }

    /// Sets a callback for the events of a push. It must not block.
    #[must_use]
    pub fn on_event(mut self, callback: impl Fn(&SyncEvent<'_>) + Send + Sync + 'static) -> Self {
        self.on_event = Arc::new(callback);
        self
    }

    /// Plans a push of this directory. It only reads from the service and changes nothing.
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn plan(&self, dir: impl Into<PathBuf>) -> Result<SyncPlan, SyncError> {
        let (index, account) = (self.upload_index.clone(), self.account.clone());
        let index_entries = run_blocking(move || index.read(&account)).await?;
        self.make_plan(dir.into(), &index_entries).await
    }

    /// Pushes the skills of this directory, which may also be a skill itself. A failed skill does not stop the others. Dropping the future
    /// abandons running uploads; the next push finds them.
    ///
    /// # Errors
    /// [`SyncError`]. Nothing was sent in that case.
    pub async fn push(&self, dir: impl Into<PathBuf>) -> Result<SyncReport, SyncError> {
        let mut locked = self.lock_index().await?;
        let plan = self.make_plan(dir.into(), &locked.uploaded()).await?;
        (self.on_event)(&SyncEvent::Planned(&plan));
        let SyncPlan { skills, absent, notes, dir, missing_remotely } = plan;
        let mut index_error = None;
        for id in missing_remotely {
            (locked, index_error) =
                update_index(locked, index_error, move |locked| locked.forget(&id)).await?;
        }
        let mut finished = Vec::with_capacity(skills.len());
        let mut uploads =
            stream::iter(skills).map(|skill| self.push_one(skill)).buffer_unordered(self.concurrency.get());
        while let Some((skill, digest)) = uploads.next().await {
            if let (Ok(pushed), Some(digest)) = (&skill.result, digest) {
                let (name, dir) = (skill.name.clone(), dir.clone());
                let (id, version) = (pushed.skill().clone(), pushed.version().cloned());
                let entry = UploadedSkill { id, version, digest, dir };
                let record = move |locked: &mut LockedIndex| locked.remember(&name, entry);
                (locked, index_error) = update_index(locked, index_error, record).await?;
            }
            (self.on_event)(&SyncEvent::Finished(&skill));
            finished.push(skill);
        }
        finished.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
        Ok(SyncReport { skills: finished, absent, notes, record_error: index_error })
    }

    /// Deletes a skill with all its versions at the service, and its index entry. After a failure, the next call deletes the rest.
    ///
    /// # Errors
    /// [`SyncError`]. The index entry is removed even if the service does not have the skill.
    pub async fn delete(&self, skill: &SkillId) -> Result<Deleted, SyncError> {
        let mut locked = self.lock_index().await?;
        let deleted = self.delete_one(skill).await;
        let is_absent = match &deleted {
            Ok(_) => true,
            Err(error) => error.kind() == HostedErrorKind::NotFound,
        };
        if is_absent {
            let id = skill.clone();
            run_blocking(move || locked.forget(&id)).await?;
        }
        Ok(deleted?)
    }

    /// Deletes a forgotten skill with all its versions, unless it was pushed again. It locks the index meanwhile. The call may be repeated.
    ///
    /// # Errors
    /// [`SyncError`], for example [`SyncError::Busy`] during a push. Nothing was sent in that case.
    pub async fn delete_forgotten(&self, skill: &SkillId) -> Result<ForgetOutcome, SyncError> {
        let locked = self.lock_index().await?;
        if locked.uploaded().values().any(|known| known.id == *skill) {
            return Ok(ForgetOutcome::Remembered);
        }
        let deleted = self.skills.delete_with_versions(skill).await;
        drop(locked);
        match deleted {
            Err(error) if error.kind() != HostedErrorKind::NotFound => Err(error.into()),
            _ => Ok(ForgetOutcome::Deleted),
        }
    }

    /// The uploaded skills of this key: skill id by name. They are read from the index; no request is sent.
    ///
    /// # Errors
    /// [`SyncError`], if the index cannot be read.
    pub async fn uploaded_skills(&self) -> Result<BTreeMap<String, SkillId>, SyncError> {
        let (index, account) = (self.upload_index.clone(), self.account.clone());
        let index_entries = run_blocking(move || index.read(&account)).await?;
        Ok(index_entries.into_iter().map(|(name, known)| (name, known.id)).collect())
    }

    /// Removes index entries. The skills stay at the service; a push finds them by title.
    ///
    /// # Errors
    /// [`SyncError`], if the index cannot be changed, for example during a push.
    pub async fn forget(&self, skills: Vec<SkillId>) -> Result<(), SyncError> {
        let mut locked = self.lock_index().await?;
        run_blocking(move || skills.iter().try_for_each(|skill| locked.forget(skill))).await
    }

    async fn delete_one(&self, id: &SkillId) -> Result<Deleted, HostedError> {
        let record = self.skills.get(id).await?;
        let versions: Vec<VersionMetadata> = self.skills.versions(id).try_collect().await?;
        self.skills.delete_with_versions(id).await?;
        Ok(Deleted { skill: id.clone(), title: record.title, versions: versions.len() })
    }

    async fn lock_index(&self) -> Result<LockedIndex, SyncError> {
        let (index, account) = (self.upload_index.clone(), self.account.clone());
        run_blocking(move || index.lock(&account)).await
    }

    /// Plans a push. It compares the files of versions that are not in the index.
    async fn make_plan(&self, dir: PathBuf, index_entries: &UploadedSkills) -> Result<SyncPlan, SyncError> {
        let limits = *self.skills.limits();
        let local = run_blocking(move || local_skills::scan(&dir, &limits)).await?;
        let listed: Vec<SkillMetadata> = self.skills.list(Some(SkillSource::Custom)).try_collect().await?;
        let LocalSkills { dir, skills, warnings: notes } = local;
        let local_names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let (present, missing_remotely): (Vec<_>, Vec<_>) = absent(&dir, &local_names, index_entries)
            .partition(|(_, known)| listed.iter().any(|record| record.id == known.id));
        let absent = present
            .into_iter()
            .map(|(name, known)| MissingLocally { name: name.clone(), skill: known.id.clone() })
            .collect();
        let missing_remotely = missing_remotely.into_iter().map(|(_, known)| known.id.clone()).collect();
        let skills = stream::iter(skills)
            .map(|skill| self.plan_one(skill, index_entries, &listed))
            .buffered(self.concurrency.get());
        Ok(SyncPlan { skills: skills.collect().await, absent, notes, dir, missing_remotely })
    }

    async fn plan_one(
        &self,
        skill: LocalSkill,
        index_entries: &UploadedSkills,
        listed: &[SkillMetadata],
    ) -> PlannedSkill {
        let LocalSkill { name, path, content } = skill;
        let (step, candidate) = match content {
            Err(failure) => (Err(failure), None),
            Ok(candidate) => {
                let decision = decide(&name, candidate.digest, index_entries.get(&name), listed);
                (self.plan_action(&name, &candidate, decision).await, Some(candidate))
            }
        };
        PlannedSkill { name, path, step, candidate }
    }

    async fn plan_action(
        &self,
        name: &str,
        candidate: &UploadCandidate,
        decision: Decision,
    ) -> Result<PlannedAction, SkillFailure> {
        let (skill, version, matched_by) = match decision {
            Decision::Create => return Ok(PlannedAction::Create),
            Decision::Update { skill } => return Ok(PlannedAction::Update { skill }),
            Decision::Unchanged { skill, version } => return Ok(PlannedAction::Keep { skill, version }),
            Decision::Ambiguous { skills } => return Err(SkillFailure::Ambiguous { skills }),
            Decision::Compare { skill, version, matched_by } => (skill, version, matched_by),
        };
        if matched_by == Match::Title && self.skills.version(&skill, &version).await?.name != name {
            // Another skill with the same title.
            return Ok(PlannedAction::Create);
        }
        Ok(match (self.compare(&skill, &version, candidate.digest).await?, matched_by) {
            (Comparison::Same, _) => PlannedAction::Keep { skill, version },
            (Comparison::Unknown, Match::Remembered(digest)) if digest == candidate.digest => {
                PlannedAction::Keep { skill, version }
            }
            _ => PlannedAction::Update { skill },
        })
    }

    /// Downloads a version and compares its files.
    async fn compare(
        &self,
        skill: &SkillId,
        version: &VersionId,
        digest: Digest,
    ) -> Result<Comparison, HostedError> {
        use HostedErrorKind as Kind;
        let mut limits = *self.skills.limits();
        limits.download_bytes =
            limits.download_bytes.min(limits.skill_bytes.saturating_add(ARCHIVE_OVERHEAD));
        let skills = self.skills.clone().with_limits(limits);
        let fetched = async { skills.download_version(skill, version).await?.bytes().await }.await;
        let archive = match fetched {
            Ok(archive) => archive,
            Err(error) => {
                // A version above the upload limit cannot have the same files.
                return match error.kind() {
                    Kind::OverLimit => Ok(Comparison::Different),
                    Kind::NotFound | Kind::Forbidden | Kind::Refused | Kind::Protocol => {
                        Ok(Comparison::Unknown)
                    }
                    _ => Err(error),
                };
            }
        };
        let remote_digest = tokio::task::spawn_blocking(move || digest_of_archive(archive, &limits)).await;
        Ok(match remote_digest {
            Ok(Ok(known)) if known == digest => Comparison::Same,
            Ok(Ok(_)) => Comparison::Different,
            _ => Comparison::Unknown,
        })
    }

    /// Carries out the planned action. It also returns the digest of the pushed files.
    async fn push_one(&self, planned: PlannedSkill) -> (SyncedSkill, Option<Digest>) {
        let PlannedSkill { name, path, step, candidate } = planned;
        let digest = candidate.as_ref().map(|candidate| candidate.digest);
        let result = match (step, candidate) {
            (Err(failure), _) => Err(failure),
            (Ok(PlannedAction::Keep { skill, version }), _) => Ok(PushResult::Unchanged { skill, version }),
            (Ok(step), Some(candidate)) => {
                self.upload(&name, &candidate, step).await.map_err(SkillFailure::from)
            }
            // The plan never has an upload without a candidate.
            (Ok(_), None) => Err(SkillFailure::Invalid { reason: "it was not read".to_owned() }),
        };
        (SyncedSkill { name, path, result }, digest)
    }

    async fn upload(
        &self,
        name: &str,
        candidate: &UploadCandidate,
        step: PlannedAction,
    ) -> Result<PushResult, HostedError> {
        let bundle = &candidate.bundle;
        (self.on_event)(&SyncEvent::Started { name, bytes: bundle.total_bytes() });
        let (callback, of) = (Arc::clone(&self.on_event), name.to_owned());
        let upload =
            Upload::new().on_progress(move |progress| callback(&SyncEvent::Uploaded { name: &of, progress }));
        match step {
            PlannedAction::Keep { skill, version } => Ok(PushResult::Unchanged { skill, version }),
            PlannedAction::Update { skill } => {
                let version = self.skills.create_version_of_bundle(&skill, bundle, upload).await?.id;
                Ok(PushResult::Updated { skill, version })
            }
            PlannedAction::Create => {
                let record = self.skills.upload_bundle(bundle, upload.with_title(name)).await?;
                let version = match record.latest {
                    Some(version) => Some(version),
                    // The skill exists. If its version stays unknown, the next push asks for it again.
                    None => {
                        let newest = self.skills.version(&record.id, &VersionId::new(LATEST)).await;
                        newest.ok().map(|version| version.id)
                    }
                };
                Ok(PushResult::Created { skill: record.id, version })
            }
        }
    }
}

/// Changes the index. The first write error is kept for the report and does not stop the push, because the next push finds the uploads.
async fn update_index(
    mut locked: LockedIndex,
    failure: Option<SyncError>,
    change: impl FnOnce(&mut LockedIndex) -> Result<(), SyncError> + Send + 'static,
) -> Result<(LockedIndex, Option<SyncError>), SyncError> {
    run_blocking(move || {
        let changed = change(&mut locked).err();
        Ok((locked, failure.or(changed)))
    })
    .await
}

/// Runs blocking work.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SyncError> + Send + 'static,
) -> Result<T, SyncError> {
    conjure_fs::run_blocking(work).await.map_err(|_| {
        HostedError::new(HostedErrorKind::InvalidSkill, "the reader of the skills has crashed")
    })?
}

impl std::fmt::Debug for SkillSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkillSync")
            .field("service", &self.account.service)
            .field("index", &self.upload_index)
            .finish_non_exhaustive()
    }
}
