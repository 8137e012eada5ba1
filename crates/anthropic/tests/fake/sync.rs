//! Synchronisation of skill directories with the fake: uploads, the index, and what a crash leaves.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conjure_anthropic::fake::{FakeMessages, Refusal, Reply};
use conjure_anthropic::hosted::{
    ForgetOutcome, HostedErrorKind, LATEST, PlannedAction, PushResult, SkillFailure, SkillId, SkillMetadata,
    SkillSource, SkillSync, SyncErrorKind, SyncEvent, SyncReport, Upload, VersionId, VersionMetadata,
};
use conjure_anthropic::{ApiProfile, Client, Config};
use conjure_conversation::ApiErrorKind;
use conjure_skill::{PackageLimits, pack_file};
use futures_util::TryStreamExt as _;
use secrecy::SecretString;
use tempfile::TempDir;

use crate::hosted::{PROFILES, client};
use crate::support::{KEY, start};

/// A directory of skills, a place for the record, and the service.
struct Fixture {
    temp: TempDir,
    fake: FakeMessages,
    profile: ApiProfile,
}

impl Fixture {
    async fn new(profile: ApiProfile) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("skills")).unwrap();
        Self { temp, fake: start(FakeMessages::builder().profile(profile)).await, profile }
    }

    async fn with(skills: &[&str]) -> Self {
        let fixture = Self::new(ApiProfile::Beta).await;
        skills.iter().for_each(|name| fixture.write(name, "One."));
        fixture
    }

    fn skills(&self) -> PathBuf {
        self.temp.path().join("skills")
    }

    fn record(&self) -> PathBuf {
        self.temp.path().join("data/hosted/skills.json")
    }

    fn write(&self, name: &str, text: &str) {
        let dir = self.skills().join(name);
        fs::create_dir_all(dir.join("scripts")).unwrap();
        let main = format!("---\nname: {name}\ndescription: {text}\n---\nBody\n");
        fs::write(dir.join("SKILL.md"), main).unwrap();
        fs::write(dir.join("scripts/a.py"), "print(1)\n").unwrap();
    }

    fn client(&self) -> Client {
        client(&self.fake, self.profile)
    }

    fn sync(&self) -> SkillSync {
        SkillSync::new(self.client().skills(), self.temp.path().join("data/hosted"))
    }

    async fn push(&self) -> SyncReport {
        self.sync().push(self.skills()).await.unwrap()
    }

    /// The result of a push for each skill, and the number of uploads.
    async fn pushed(&self) -> (Vec<String>, usize) {
        let before = self.uploads();
        let report = self.push().await;
        (describe(&report), self.uploads() - before)
    }

    fn uploads(&self) -> usize {
        self.fake.requests().iter().filter(|request| request.method() == "POST").count()
    }

    async fn custom(&self) -> Vec<SkillMetadata> {
        self.client().skills().list(Some(SkillSource::Custom)).try_collect().await.unwrap()
    }

    async fn versions(&self, skill: &SkillId) -> Vec<VersionMetadata> {
        self.client().skills().versions(skill).try_collect().await.unwrap()
    }

    /// Uploads it as another client would.
    async fn upload(&self, name: &str, title: &str) -> SkillMetadata {
        let upload = Upload::new().with_title(title);
        self.client().skills().upload(self.skills().join(name), upload).await.unwrap()
    }
}

fn describe(report: &SyncReport) -> Vec<String> {
    let word = |skill: &conjure_anthropic::hosted::SyncedSkill| {
        let word = match skill.result() {
            Ok(PushResult::Created { .. }) => "created",
            Ok(PushResult::Updated { .. }) => "updated",
            Ok(PushResult::Unchanged { .. }) => "unchanged",
            Err(SkillFailure::Invalid { .. }) => "invalid",
            Err(SkillFailure::Ambiguous { .. }) => "ambiguous",
            Err(_) => "failed",
        };
        format!("{} {word}", skill.name())
    };
    report.skills.iter().map(word).collect()
}

fn failure(kind: ApiErrorKind) -> Reply {
    Reply::error(Refusal::new(kind, "so it is")).with_header("x-should-retry", "false")
}

#[tokio::test]
async fn only_new_or_changed_skills_are_uploaded() {
    for profile in PROFILES {
        let fixture = Fixture::new(profile).await;
        fixture.write("a", "One.");
        fixture.write("b", "One.");
        let first = fixture.push().await;
        assert_eq!(describe(&first), ["a created", "b created"]);
        assert!(first.is_complete() && first.absent.is_empty() && first.notes.is_empty(), "{first:?}");
        assert_eq!(fixture.pushed().await, (vec!["a unchanged".to_owned(), "b unchanged".to_owned()], 0));
        // Only the list was requested.
        assert!(fixture.fake.requests().last().unwrap().path().contains("/v1/skills?"));

        fs::write(fixture.skills().join("b/scripts/a.py"), "print(2)\n").unwrap();
        let changed = fixture.push().await;
        assert_eq!(describe(&changed), ["a unchanged", "b updated"]);
        let pushed = changed.skills[1].result().unwrap();
        assert_eq!(pushed.skill(), first.skills[1].result().unwrap().skill());
        assert_eq!(fixture.pushed().await.1, 0);

        let custom = fixture.custom().await;
        // Two are uploaded at a time: either may be the newer.
        let titled =
            |title: &str| custom.iter().find(|record| record.title.as_deref() == Some(title)).unwrap();
        let (a, b) = (titled("a"), titled("b"));
        assert_eq!((custom.len(), b.latest.as_ref()), (2, pushed.version()));
        assert_eq!((fixture.versions(&a.id).await.len(), fixture.versions(&b.id).await.len()), (1, 2));
        // Files that are not uploaded do not count as a change.
        fs::create_dir(fixture.skills().join("a/.git")).unwrap();
        fs::write(fixture.skills().join("a/.git/config"), "x").unwrap();
        assert_eq!(fixture.pushed().await.1, 0);
        let record = fs::read_to_string(fixture.record()).unwrap();
        assert!(!record.contains(KEY), "{record}");
    }
}

#[tokio::test]
async fn unrecorded_uploads_are_found_and_not_repeated() {
    for profile in PROFILES {
        let fixture = Fixture::new(profile).await;
        fixture.write("a", "One.");
        fixture.push().await;
        let old = fs::read(fixture.record()).unwrap();
        // Killed behind the upload of a new skill, or its record deleted.
        fs::remove_file(fixture.record()).unwrap();
        assert_eq!(fixture.pushed().await, (vec!["a unchanged".to_owned()], 0));
        assert_eq!(fs::read(fixture.record()).unwrap(), old);
        // Killed behind the upload of a version.
        fixture.write("a", "Two.");
        assert_eq!(fixture.pushed().await.1, 1);
        let new = fs::read(fixture.record()).unwrap();
        fs::write(fixture.record(), &old).unwrap();
        assert_eq!(fixture.pushed().await, (vec!["a unchanged".to_owned()], 0));
        assert_eq!(fs::read(fixture.record()).unwrap(), new);
        // And changed here since.
        fs::remove_file(fixture.record()).unwrap();
        fixture.write("a", "Three.");
        assert_eq!(fixture.pushed().await, (vec!["a updated".to_owned()], 1));
        let custom = fixture.custom().await;
        assert_eq!((custom.len(), fixture.versions(&custom[0].id).await.len()), (1, 3));
    }
}

#[tokio::test]
async fn an_interrupted_push_is_completed_by_the_next_one() {
    let names = ["a", "b", "c"];
    // Planned, and two events of each.
    for cut in 1..=7 {
        let fixture = Fixture::with(&names).await;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let remaining = Mutex::new((cut, Some(stop)));
        let sync = fixture.sync().with_concurrency(NonZeroUsize::MIN).on_event(move |event| {
            let mut remaining = remaining.lock().unwrap();
            remaining.0 -= i32::from(!matches!(event, SyncEvent::Uploaded { .. }));
            if remaining.0 == 0
                && let Some(stop) = remaining.1.take()
            {
                stop.send(()).unwrap();
            }
        });
        tokio::select! {
            biased;
            cut = stopped => cut.unwrap(),
            report = sync.push(fixture.skills()) => assert!(cut == 7 && report.unwrap().is_complete()),
        }
        let report = fixture.push().await;
        assert!(report.is_complete(), "{report:?}");
        let mut titles: Vec<String> =
            fixture.custom().await.into_iter().filter_map(|skill| skill.title).collect();
        titles.sort();
        assert_eq!(titles, names, "cut at {cut}");
        assert_eq!((fixture.pushed().await.1, fixture.uploads()), (0, 3), "cut at {cut}");
    }
}

#[tokio::test]
async fn skills_missing_locally_are_reported_and_kept() {
    let fixture = Fixture::with(&["a", "b", "c"]).await;
    fixture.push().await;
    fs::remove_dir_all(fixture.skills().join("a")).unwrap();
    fs::remove_dir_all(fixture.skills().join("b")).unwrap();
    fixture.write("d", "One.");
    // An invalid skill does not count as missing.
    fs::write(fixture.skills().join("c/SKILL.md"), "---\nname: c\n---\n").unwrap();
    let report = fixture.push().await;
    assert_eq!(describe(&report), ["c invalid", "d created"]);
    let absent = |report: &SyncReport| -> Vec<String> {
        report.absent.iter().map(|absent| absent.name.clone()).collect()
    };
    assert_eq!(absent(&report), ["a", "b"]);
    assert!(!report.is_complete() && fixture.custom().await.len() == 4);
    assert!(fixture.fake.requests().iter().all(|request| request.method() != "DELETE"));
    // Gone there, too, it is forgotten.
    fixture.client().skills().delete_with_versions(&report.absent[0].skill).await.unwrap();
    assert_eq!(absent(&fixture.push().await), ["b"]);
    let record = fs::read_to_string(fixture.record()).unwrap();
    assert!(!record.contains(report.absent[0].skill.as_str()), "{record}");
    // Another directory misses nothing.
    let other = fixture.temp.path().join("other");
    fs::create_dir(&other).unwrap();
    let report = fixture.sync().push(&other).await.unwrap();
    assert!(report.absent.is_empty() && report.skills.is_empty());
}

#[tokio::test]
async fn invalid_skills_are_reported_and_others_are_pushed() {
    let fixture = Fixture::with(&["a", "good"]).await;
    fs::write(fixture.skills().join("a/SKILL.md"), "---\nname: a\n---\n").unwrap();
    // Loaded with a warning, and refused by the service.
    fixture.write("renamed", "One.");
    fs::rename(fixture.skills().join("renamed"), fixture.skills().join("other")).unwrap();
    let package = fixture.temp.path().join("packed");
    fs::create_dir(&package).unwrap();
    fs::rename(fixture.skills().join("good"), package.join("good")).unwrap();
    pack_file(package.join("good"), fixture.skills(), PackageLimits::default()).unwrap();
    let plan = fixture.sync().plan(fixture.skills()).await.unwrap();
    assert!(!plan.is_possible() && plan.notes.len() == 1, "{plan:?}");
    assert_eq!(plan.skills[1].step().unwrap(), &PlannedAction::Create);
    assert!(plan.skills[1].path().ends_with("good.skill"), "{plan:?}");
    assert_eq!((fixture.uploads(), fixture.temp.path().join("data").exists()), (0, false));

    let report = fixture.push().await;
    assert_eq!(describe(&report), ["a invalid", "good created", "renamed invalid"]);
    let reason = report.skills[0].result().unwrap_err().to_string();
    assert!(reason.contains("description"), "{reason}");
    assert!(report.skills[2].path().ends_with("other/SKILL.md"));
    assert_eq!(fixture.pushed().await.1, 0);
}

#[tokio::test]
async fn one_failed_skill_does_not_stop_the_others() {
    let fixture = Fixture::with(&["a", "b", "c"]).await;
    let fake = Arc::new(fixture.fake);
    let received = Arc::new(Mutex::new(Vec::new()));
    let (of_event, recorder) = (Arc::clone(&fake), Arc::clone(&received));
    let sync =
        SkillSync::new(client(&fake, ApiProfile::Beta).skills(), fixture.temp.path().join("data/hosted"));
    let failing = sync.clone().with_concurrency(NonZeroUsize::MIN).on_event(move |event| match event {
        SyncEvent::Started { name, bytes } => {
            recorder.lock().unwrap().push(format!("{name} {bytes}"));
            match *name {
                "a" => of_event.add_hosted_fault(failure(ApiErrorKind::Api)),
                "b" => of_event.add_hosted_fault(failure(ApiErrorKind::Permission)),
                _ => {}
            }
        }
        SyncEvent::Finished(skill) => recorder.lock().unwrap().push(skill.name().to_owned()),
        _ => {}
    });
    let skills = fixture.temp.path().join("skills");
    let report = failing.push(&skills).await.unwrap();
    assert_eq!(describe(&report), ["a failed", "b failed", "c created"]);
    let service = |index: usize| match report.skills[index].result() {
        Err(SkillFailure::Service(error)) => (error.kind(), error.may_have_happened()),
        other => panic!("{other:?}"),
    };
    assert_eq!(service(0), (HostedErrorKind::Service, true));
    assert_eq!(service(1), (HostedErrorKind::Forbidden, false));
    assert_eq!(*received.lock().unwrap(), ["a 48", "a", "b 48", "b", "c 48", "c"]);
    // It had not arrived.
    assert_eq!(describe(&sync.push(&skills).await.unwrap()), ["a created", "b created", "c unchanged"]);
}

#[tokio::test]
async fn skills_with_the_same_title_are_distinguished() {
    let fixture = Fixture::with(&["a", "b", "c"]).await;
    // Another client has given this title to another skill.
    let foreign_skill = fixture.upload("b", "a").await;
    // It is there twice.
    let (one, two) = (fixture.upload("b", "b").await, fixture.upload("b", "b").await);
    // Another client has uploaded it, without this index.
    let same = fixture.upload("c", "c").await;
    let report = fixture.push().await;
    assert_eq!(describe(&report), ["a created", "b ambiguous", "c unchanged"]);
    assert_eq!(report.skills[2].result().unwrap().skill(), &same.id);
    assert_ne!(report.skills[0].result().unwrap().skill(), &foreign_skill.id);
    let reason = report.skills[1].result().unwrap_err().to_string();
    assert!(reason.contains(one.id.as_str()) && reason.contains(two.id.as_str()), "{reason}");
    assert_eq!(fixture.versions(&foreign_skill.id).await.len(), 1);
    // The index entry stays, even if another skill has the same title.
    fixture.sync().delete(&two.id).await.unwrap();
    assert_eq!(describe(&fixture.push().await)[1], "b unchanged");
    fixture.upload("b", "b").await;
    assert_eq!(describe(&fixture.push().await)[1], "b unchanged");
}

#[tokio::test]
async fn changes_by_other_clients_are_detected() {
    let fixture = Fixture::with(&["a"]).await;
    fixture.push().await;
    let skills = fixture.client().skills();
    let id = fixture.custom().await[0].id.clone();
    // Another version is the newest: the directory's is uploaded.
    fixture.write("a", "Two.");
    skills.create_version(&id, fixture.skills().join("a"), Upload::new()).await.unwrap();
    fixture.write("a", "One.");
    assert_eq!(fixture.pushed().await, (vec!["a updated".to_owned()], 1));
    let latest = VersionId::new(LATEST);
    assert_eq!(skills.version(&id, &latest).await.unwrap().description, "One.");
    // The newest was deleted.
    skills.delete_version(&id, &latest).await.unwrap();
    assert_eq!(fixture.pushed().await, (vec!["a updated".to_owned()], 1));
    // All versions were, by a deletion that broke off.
    for version in fixture.versions(&id).await {
        skills.delete_version(&id, &version.id).await.unwrap();
    }
    assert_eq!(fixture.pushed().await, (vec!["a updated".to_owned()], 1));
    // The skill was.
    skills.delete_with_versions(&id).await.unwrap();
    assert_eq!(fixture.pushed().await, (vec!["a created".to_owned()], 1));
    assert_eq!((fixture.custom().await.len(), fixture.pushed().await.1), (1, 0));
}

#[tokio::test]
async fn a_skill_is_deleted_with_its_versions_and_its_index_entry() {
    let fixture = Fixture::with(&["a", "b"]).await;
    fixture.push().await;
    fixture.write("a", "Two.");
    let report = fixture.push().await;
    let id = report.skills[0].result().unwrap().skill().clone();
    let deleted = fixture.sync().delete(&id).await.unwrap();
    assert_eq!((&deleted.skill, deleted.title.as_deref(), deleted.versions), (&id, Some("a"), 2));
    assert!(!fs::read_to_string(fixture.record()).unwrap().contains(id.as_str()));
    let error = fixture.sync().delete(&id).await.unwrap_err();
    assert_eq!(error.kind(), SyncErrorKind::Service);
    assert_eq!(fixture.pushed().await, (vec!["a created".to_owned(), "b unchanged".to_owned()], 1));
    // Others deleted it.
    let id = fixture.custom().await[0].id.clone();
    fixture.client().skills().delete_with_versions(&id).await.unwrap();
    fixture.sync().delete(&id).await.unwrap_err();
    assert!(!fs::read_to_string(fixture.record()).unwrap().contains(id.as_str()));
}

#[tokio::test]
async fn an_unindexed_skill_is_deleted_unless_it_is_indexed_again_or_a_push_runs() {
    let fixture = Fixture::with(&["a", "b"]).await;
    let report = fixture.push().await;
    let [a, b] = [0, 1].map(|at| report.skills[at].result().unwrap().skill().clone());
    fixture.sync().forget(vec![a.clone()]).await.unwrap();
    let lock = fs::File::open(fixture.record().with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let busy = fixture.sync().delete_forgotten(&a).await.unwrap_err();
    assert!(busy.kind() == SyncErrorKind::Busy && busy.is_retryable());
    assert_eq!(fixture.custom().await.len(), 2);
    drop(lock);
    for (id, expected) in
        [(&a, ForgetOutcome::Deleted), (&a, ForgetOutcome::Deleted), (&b, ForgetOutcome::Remembered)]
    {
        assert_eq!(fixture.sync().delete_forgotten(id).await.unwrap(), expected);
    }
    let remaining: Vec<SkillId> = fixture.custom().await.into_iter().map(|skill| skill.id).collect();
    assert_eq!(remaining, [b]);
    // The lock is let go of also where the service fails.
    fixture.fake.add_hosted_fault(failure(ApiErrorKind::Permission));
    let error = fixture.sync().delete_forgotten(&a).await.unwrap_err();
    assert_eq!(error.kind(), SyncErrorKind::Service);
    assert_eq!(fixture.pushed().await, (vec!["a created".to_owned(), "b unchanged".to_owned()], 1));
}

async fn refused(fixture: &Fixture, dir: &Path) -> (SyncErrorKind, String) {
    let uploads = fixture.uploads();
    let error = fixture.sync().push(dir).await.unwrap_err();
    assert_eq!(fixture.uploads(), uploads);
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn impossible_pushes_fail_before_any_request() {
    let fixture = Fixture::with(&["a"]).await;
    let missing = fixture.temp.path().join("no");
    let (kind, message) = refused(&fixture, &missing).await;
    assert!(kind == SyncErrorKind::Dir && message.contains("no"), "{message}");
    // Another push is under way.
    let lock = fixture.record().with_extension("lock");
    let lock = fs::File::open(lock).unwrap();
    lock.try_lock().unwrap();
    assert_eq!(refused(&fixture, &fixture.skills()).await.0, SyncErrorKind::Busy);
    let deleting = fixture.sync().delete(&SkillId::new("skill_1")).await.unwrap_err();
    assert!(deleting.kind() == SyncErrorKind::Busy && deleting.is_retryable());
    // To look is allowed.
    fixture.sync().plan(fixture.skills()).await.unwrap();
    drop(lock);
    // A damaged index is not deleted.
    fs::write(fixture.record(), "{\"format\": 1").unwrap();
    let (kind, message) = refused(&fixture, &fixture.skills()).await;
    assert!(kind == SyncErrorKind::Damaged && message.contains("delete it"), "{message}");
    assert_eq!(fs::read_to_string(fixture.record()).unwrap(), "{\"format\": 1");
    fs::remove_file(fixture.record()).unwrap();
    // The service says no.
    fixture.fake.add_hosted_fault(failure(ApiErrorKind::Authentication));
    assert_eq!(refused(&fixture, &fixture.skills()).await.0, SyncErrorKind::Service);
    assert_eq!(fixture.pushed().await, (vec!["a created".to_owned()], 1));
}

#[tokio::test]
async fn an_unwritable_index_does_not_stop_a_push() {
    let fixture = Fixture::with(&["a", "b"]).await;
    // A directory at the path of the file cannot be replaced.
    let draft = fixture.temp.path().join("data/hosted/skills.json.new");
    fs::create_dir_all(&draft).unwrap();
    let report = fixture.push().await;
    assert_eq!(describe(&report), ["a created", "b created"]);
    assert!(!report.is_complete());
    assert_eq!(report.record_error.unwrap().kind(), SyncErrorKind::Storage);
    fs::remove_dir(&draft).unwrap();
    let report = fixture.push().await;
    assert!(report.is_complete() && fixture.uploads() == 2, "{report:?}");
}

#[tokio::test]
async fn each_key_has_its_own_index_entries() {
    let fixture = Fixture::with(&["a"]).await;
    fixture.push().await;
    let first_record = fs::read_to_string(fixture.record()).unwrap();
    let other = Config::new(SecretString::from("sk-other-0123456789")).with_base_url(fixture.fake.base_url());
    let other = Client::new(&other.with_http(|http| http.with_seed(1))).unwrap();
    let sync = SkillSync::new(other.skills(), fixture.temp.path().join("data/hosted"));
    // As a task, which may move to another thread.
    let mut tasks = tokio::task::JoinSet::new();
    let skills = fixture.skills();
    tasks.spawn(async move { sync.push(skills).await });
    let report = tasks.join_next().await.unwrap().unwrap().unwrap();
    // The fake has one set of skills for all keys, so it is found.
    assert_eq!(describe(&report), ["a unchanged"]);
    let both = fs::read_to_string(fixture.record()).unwrap();
    assert_eq!((first_record.matches("base_url").count(), both.matches("base_url").count()), (1, 2));
    assert!(!both.contains("sk-other") && !both.contains(KEY), "{both}");
}
