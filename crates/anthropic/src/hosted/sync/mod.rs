//! A folder of skills, brought in step with the service: what is new is uploaded, what has changed is uploaded as another
//! version, and nothing else is sent.
//!
//! A skill of the service is taken for one of the folder by its id, where a push has put it down, else by its title, which
//! is the skill's name, among those that are the host's own. Whether it has changed is told by the digest of its files: of
//! those here, and of those that were uploaded as the newest version. Where another version is the newest than was put
//! down (a push was killed before it came to that, the record is lost, somebody else has uploaded), its files are fetched and
//! digested. So a push that is repeated uploads nothing twice, wherever the one before it ended.
//!
//! State: the record of what was uploaded (`index`), changed after each upload. **After a crash** it lacks what was
//! under way at most, and the next push finds that at the service.
//!
//! **What cannot be known.** A request that was under way in a crash may arrive after the next push has looked. Two machines
//! that push a skill for the first time at the same moment make two: pushes exclude each other by a lock in the record's
//! folder, not beyond it; the push after that says that there are two, and sends neither. Where the service gives no files out
//! for a version that is not remembered, the skill is uploaded once more, unless what was put down last is what is here. Who has
//! given a skill another title than its name has it uploaded beside that one, once.
//!
//! **What is absent.** Nothing is deleted: what left the folder is told, and stays.

mod error;
mod index;
mod local;
mod plan;
mod report;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::Digest;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

pub use error::{SkillFailure, SyncError, SyncErrorKind};
pub use report::{Absent, PlannedSkill, Pushed, Step, SyncEvent, SyncPlan, SyncReport, SyncedSkill};

use crate::hosted::bundle::digest_of_archive;
pub(in crate::hosted) use crate::hosted::sync::index::Account;
use crate::hosted::sync::index::{Index, Locked, Memory, Remembered};
use crate::hosted::sync::local::{Local, LocalSkill, Ready};
use crate::hosted::sync::plan::{Decision, Match, absent, decide};
use crate::hosted::{
    HostedError, HostedErrorKind, LATEST, SkillId, SkillRecord, SkillSource, Skills, Upload, VersionId,
    VersionRecord,
};

/// How many skills are uploaded or compared at a time, unless the host says otherwise.
const AT_A_TIME: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// How much larger than its files an archive may be, in bytes, for their names.
const ARCHIVE_ROOM: u64 = 16 << 20;

type OnEvent = Arc<dyn Fn(&SyncEvent<'_>) + Send + Sync>;

/// Keeps the skills of folders in step with the service, under one key.
///
/// ```
/// # #[cfg(feature = "fake")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use conjure_anthropic::hosted::{Pushed, SkillSync};
/// use conjure_anthropic::{Client, Config, fake::FakeMessages};
///
/// let service = FakeMessages::builder().start().await?;
/// let client = Client::new(&Config::new("sk-1".into()).with_base_url(service.base_url()))?;
///
/// let temp = tempfile::tempdir()?;
/// let folder = temp.path().join("skills/greeting");
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(folder.join("SKILL.md"), "---\nname: greeting\ndescription: Says hello\n---\nSay hello.\n")?;
///
/// // What is uploaded is put down in `temp/hosted/skills.json`.
/// let sync = SkillSync::new(client.skills(), temp.path().join("hosted"));
/// let report = sync.push(temp.path().join("skills")).await?;
/// assert!(matches!(report.skills[0].result(), Ok(Pushed::Created { .. })));
///
/// let again = sync.push(temp.path().join("skills")).await?;
/// assert!(matches!(again.skills[0].result(), Ok(Pushed::Unchanged { .. })));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "fake"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct SkillSync {
    skills: Skills,
    account: Account,
    index: Index,
    at_a_time: NonZeroUsize,
    on_event: OnEvent,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deleted {
    /// The skill.
    pub skill: SkillId,
    /// Its title.
    pub title: Option<String>,
    /// How many versions it had.
    pub versions: usize,
}

/// What became of a skill that was to be deleted unless it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// It is not at the service any more, or was not.
    Deleted,
    /// It is remembered: somebody has pushed it since it was forgotten, and it stays.
    Remembered,
}

/// What a comparison came to.
enum Compared {
    Same,
    Different,
    /// The service does not say what it has.
    Unknown,
}

impl SkillSync {
    /// By these skills of the service, with the record of what was uploaded in `folder`, such as `<data>/hosted`. The folder is
    /// made when something is pushed; one record serves any number of keys and services.
    pub fn new(skills: Skills, folder: impl Into<PathBuf>) -> Self {
        let account = skills.account();
        Self {
            skills,
            account,
            index: Index::new(folder.into()),
            at_a_time: AT_A_TIME,
            on_event: Arc::new(|_| {}),
        }
    }

    /// With so many skills uploaded or compared at a time. 4 by default.
    #[must_use]
    pub const fn with_concurrency(mut self, at_a_time: NonZeroUsize) -> Self {
        self.at_a_time = at_a_time;
        self
    }

    /// Tells what happens in a push. It must not block.
    #[must_use]
    pub fn on_event(mut self, tell: impl Fn(&SyncEvent<'_>) + Send + Sync + 'static) -> Self {
        self.on_event = Arc::new(tell);
        self
    }

    /// What a push of this folder would do. It sends and changes nothing; it asks the service what it has.
    ///
    /// # Errors
    /// [`SyncError`].
    pub async fn plan(&self, folder: impl Into<PathBuf>) -> Result<SyncPlan, SyncError> {
        let (index, account) = (self.index.clone(), self.account.clone());
        let memory = blocking(move || index.read(&account)).await?;
        self.planned(folder.into(), &memory).await
    }

    /// Brings the service in step with the skills of this folder, which may also be a skill itself. One that fails does not
    /// hold up the others. Dropped, it abandons what is under way, which the next push finds.
    ///
    /// # Errors
    /// [`SyncError`], where nothing was sent.
    pub async fn push(&self, folder: impl Into<PathBuf>) -> Result<SyncReport, SyncError> {
        let mut locked = self.locked().await?;
        let plan = self.planned(folder.into(), &locked.memory()).await?;
        (self.on_event)(&SyncEvent::Planned(&plan));
        let SyncPlan { skills, absent, notes, folder, gone } = plan;
        let mut not_remembered = None;
        for id in gone {
            (locked, not_remembered) = kept(locked, not_remembered, move |locked| locked.forget(&id)).await?;
        }
        let mut done = Vec::with_capacity(skills.len());
        let mut under_way =
            stream::iter(skills).map(|skill| self.pushed(skill)).buffer_unordered(self.at_a_time.get());
        while let Some((skill, digest)) = under_way.next().await {
            if let (Ok(pushed), Some(digest)) = (&skill.result, digest) {
                let (name, folder) = (skill.name.clone(), folder.clone());
                let (id, version) = (pushed.skill().clone(), pushed.version().cloned());
                let entry = Remembered { id, version, digest, folder };
                let put_down = move |locked: &mut Locked| locked.remember(&name, entry);
                (locked, not_remembered) = kept(locked, not_remembered, put_down).await?;
            }
            (self.on_event)(&SyncEvent::Finished(&skill));
            done.push(skill);
        }
        done.sort_by(|a, b| (&a.name, &a.place).cmp(&(&b.name, &b.place)));
        Ok(SyncReport { skills: done, absent, notes, not_remembered })
    }

    /// Deletes a skill of the service with all its versions, and forgets it. What is left behind when it fails in its midst, the
    /// next call deletes.
    ///
    /// # Errors
    /// [`SyncError`]. One that the service does not have is forgotten all the same.
    pub async fn delete(&self, skill: &SkillId) -> Result<Deleted, SyncError> {
        let mut locked = self.locked().await?;
        let deleted = self.deleted(skill).await;
        let is_gone = match &deleted {
            Ok(_) => true,
            Err(error) => error.kind() == HostedErrorKind::NotFound,
        };
        if is_gone {
            let id = skill.clone();
            blocking(move || locked.forget(&id)).await?;
        }
        Ok(deleted?)
    }

    /// Deletes a skill that was forgotten with all its versions, unless it is remembered again. Nobody pushes meanwhile: whoever does so
    /// later finds it gone. Dropped, it may be called again.
    ///
    /// # Errors
    /// [`SyncError`], such as [`SyncError::Busy`] while somebody pushes, who may be about to remember it: nothing was sent then.
    pub async fn delete_forgotten(&self, skill: &SkillId) -> Result<Forgotten, SyncError> {
        let locked = self.locked().await?;
        if locked.memory().values().any(|known| known.id == *skill) {
            return Ok(Forgotten::Remembered);
        }
        let deleted = self.skills.delete_with_versions(skill).await;
        drop(locked);
        match deleted {
            Err(error) if error.kind() != HostedErrorKind::NotFound => Err(error.into()),
            _ => Ok(Forgotten::Deleted),
        }
    }

    /// What pushes under this key have put down: which skill of the service each name is. Asks nobody.
    ///
    /// # Errors
    /// [`SyncError`], where the record cannot be read.
    pub async fn remembered(&self) -> Result<BTreeMap<String, SkillId>, SyncError> {
        let (index, account) = (self.index.clone(), self.account.clone());
        let memory = blocking(move || index.read(&account)).await?;
        Ok(memory.into_iter().map(|(name, known)| (name, known.id)).collect())
    }

    /// Forgets that these were uploaded. At the service they stay; a push finds them there by their titles.
    ///
    /// # Errors
    /// [`SyncError`], where the record cannot be changed, such as while somebody pushes.
    pub async fn forget(&self, skills: Vec<SkillId>) -> Result<(), SyncError> {
        let mut locked = self.locked().await?;
        blocking(move || skills.iter().try_for_each(|skill| locked.forget(skill))).await
    }

    async fn deleted(&self, id: &SkillId) -> Result<Deleted, HostedError> {
        let record = self.skills.get(id).await?;
        let versions: Vec<VersionRecord> = self.skills.versions(id).try_collect().await?;
        self.skills.delete_with_versions(id).await?;
        Ok(Deleted { skill: id.clone(), title: record.title, versions: versions.len() })
    }

    async fn locked(&self) -> Result<Locked, SyncError> {
        let (index, account) = (self.index.clone(), self.account.clone());
        blocking(move || index.lock(&account)).await
    }

    /// What to do, with all that is not remembered compared.
    async fn planned(&self, folder: PathBuf, memory: &Memory) -> Result<SyncPlan, SyncError> {
        let limits = *self.skills.limits();
        let local = blocking(move || local::look(&folder, &limits)).await?;
        let listed: Vec<SkillRecord> = self.skills.list(Some(SkillSource::Custom)).try_collect().await?;
        let Local { folder, skills, notes } = local;
        let here: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let (left, gone): (Vec<_>, Vec<_>) = absent(&folder, &here, memory)
            .partition(|(_, known)| listed.iter().any(|record| record.id == known.id));
        let absent = left
            .into_iter()
            .map(|(name, known)| Absent { name: name.clone(), skill: known.id.clone() })
            .collect();
        let gone = gone.into_iter().map(|(_, known)| known.id.clone()).collect();
        let skills = stream::iter(skills)
            .map(|skill| self.planned_skill(skill, memory, &listed))
            .buffered(self.at_a_time.get());
        Ok(SyncPlan { skills: skills.collect().await, absent, notes, folder, gone })
    }

    async fn planned_skill(
        &self,
        skill: LocalSkill,
        memory: &Memory,
        listed: &[SkillRecord],
    ) -> PlannedSkill {
        let LocalSkill { name, place, content } = skill;
        let (step, ready) = match content {
            Err(failure) => (Err(failure), None),
            Ok(ready) => {
                let decision = decide(&name, ready.digest, memory.get(&name), listed);
                (self.step(&name, &ready, decision).await, Some(ready))
            }
        };
        PlannedSkill { name, place, step, ready }
    }

    async fn step(&self, name: &str, ready: &Ready, decision: Decision) -> Result<Step, SkillFailure> {
        let (skill, version, taken) = match decision {
            Decision::Create => return Ok(Step::Create),
            Decision::Update { skill } => return Ok(Step::Update { skill }),
            Decision::Unchanged { skill, version } => return Ok(Step::Keep { skill, version }),
            Decision::Ambiguous { skills } => return Err(SkillFailure::Ambiguous { skills }),
            Decision::Compare { skill, version, taken } => (skill, version, taken),
        };
        if taken == Match::Title && self.skills.version(&skill, &version).await?.name != name {
            // Another skill that somebody has called so.
            return Ok(Step::Create);
        }
        Ok(match (self.compared(&skill, &version, ready.digest).await?, taken) {
            (Compared::Same, _) => Step::Keep { skill, version },
            (Compared::Unknown, Match::Remembered(digest)) if digest == ready.digest => {
                Step::Keep { skill, version }
            }
            _ => Step::Update { skill },
        })
    }

    /// Fetches a version, to see whether its files are these.
    async fn compared(
        &self,
        skill: &SkillId,
        version: &VersionId,
        digest: Digest,
    ) -> Result<Compared, HostedError> {
        use HostedErrorKind as Kind;
        let mut limits = *self.skills.limits();
        limits.download_bytes = limits.download_bytes.min(limits.skill_bytes.saturating_add(ARCHIVE_ROOM));
        let skills = self.skills.clone().with_limits(limits);
        let fetched = async { skills.download_version(skill, version).await?.bytes().await }.await;
        let archive = match fetched {
            Ok(archive) => archive,
            Err(error) => {
                // Larger than what may be uploaded from here is not what is here.
                return match error.kind() {
                    Kind::OverLimit => Ok(Compared::Different),
                    Kind::NotFound | Kind::Forbidden | Kind::Refused | Kind::Protocol => {
                        Ok(Compared::Unknown)
                    }
                    _ => Err(error),
                };
            }
        };
        let digested = tokio::task::spawn_blocking(move || digest_of_archive(archive, &limits)).await;
        Ok(match digested {
            Ok(Ok(known)) if known == digest => Compared::Same,
            Ok(Ok(_)) => Compared::Different,
            _ => Compared::Unknown,
        })
    }

    /// Does what was planned for a skill; the digest of what the service has now.
    async fn pushed(&self, planned: PlannedSkill) -> (SyncedSkill, Option<Digest>) {
        let PlannedSkill { name, place, step, ready } = planned;
        let digest = ready.as_ref().map(|ready| ready.digest);
        let result = match (step, ready) {
            (Err(failure), _) => Err(failure),
            (Ok(Step::Keep { skill, version }), _) => Ok(Pushed::Unchanged { skill, version }),
            (Ok(step), Some(ready)) => self.sent(&name, &ready, step).await.map_err(SkillFailure::from),
            // What is to be sent was read.
            (Ok(_), None) => Err(SkillFailure::Invalid { reason: "it was not read".to_owned() }),
        };
        (SyncedSkill { name, place, result }, digest)
    }

    async fn sent(&self, name: &str, ready: &Ready, step: Step) -> Result<Pushed, HostedError> {
        let bundle = &ready.bundle;
        (self.on_event)(&SyncEvent::Started { name, bytes: bundle.total_bytes() });
        let (tell, of) = (Arc::clone(&self.on_event), name.to_owned());
        let upload =
            Upload::new().on_progress(move |progress| tell(&SyncEvent::Sent { name: &of, progress }));
        match step {
            Step::Keep { skill, version } => Ok(Pushed::Unchanged { skill, version }),
            Step::Update { skill } => {
                let version = self.skills.create_version_of_bundle(&skill, bundle, upload).await?.id;
                Ok(Pushed::Updated { skill, version })
            }
            Step::Create => {
                let record = self.skills.upload_bundle(bundle, upload.with_title(name)).await?;
                let version = match record.latest {
                    Some(version) => Some(version),
                    // It is there; what is not known of it, the next push asks again.
                    None => {
                        let newest = self.skills.version(&record.id, &VersionId::new(LATEST)).await;
                        newest.ok().map(|version| version.id)
                    }
                };
                Ok(Pushed::Created { skill: record.id, version })
            }
        }
    }
}

/// Changes the record. That it cannot be written is told once, and ends nothing: what was uploaded is found again.
async fn kept(
    mut locked: Locked,
    failure: Option<SyncError>,
    change: impl FnOnce(&mut Locked) -> Result<(), SyncError> + Send + 'static,
) -> Result<(Locked, Option<SyncError>), SyncError> {
    blocking(move || {
        let changed = change(&mut locked).err();
        Ok((locked, failure.or(changed)))
    })
    .await
}

/// Does what blocks where that is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SyncError> + Send + 'static,
) -> Result<T, SyncError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(HostedError::new(HostedErrorKind::InvalidSkill, "the reader of the skills has crashed").into())
    })
}

impl std::fmt::Debug for SkillSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkillSync")
            .field("service", &self.account.service)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
