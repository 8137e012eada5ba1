//! Artifacts that expire while their session is idle: maintenance releases them, and nothing in use is deleted.

use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use conjure::artifact::{Digest, RegistrationSource};
use conjure::config::{ArtifactSettings, ExecutorKind, SessionTtl};
use conjure::tool::{Authorization, ToolCall};
use conjure::{Clock as _, Runtime, Session, SessionId, Settings, SystemClock, approver_fn};
use futures_util::StreamExt as _;

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant, until_clock_advances};

/// Whose artifacts expire as soon as nobody uses them.
fn fixture() -> Fixture {
    let artifacts = ArtifactSettings {
        session_ttl: Some(SessionTtl::For(Duration::from_nanos(1))),
        ..ArtifactSettings::default()
    };
    Fixture::with(ExecutorKind::Local, Settings { artifacts: Some(artifacts), ..Settings::default() })
}

fn source(text: &'static str) -> RegistrationSource {
    RegistrationSource::content(text, "text/plain")
}

fn dir(fixture: &Fixture, id: SessionId) -> PathBuf {
    fixture.data().join("tenants/acme/artifacts").join(id.stored_name())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn stored(fixture: &Fixture, text: &str) -> bool {
    let digest = Digest::of_bytes(text.as_bytes()).to_hex();
    let (shard, remainder) = digest.split_at(2);
    fixture.data().join("tenants/acme/store/plain").join(shard).join(remainder).exists()
}

/// All content of the tenant's store is old.
fn age(fixture: &Fixture) {
    for path in files(&fixture.data().join("tenants/acme/store/plain")) {
        File::open(path).unwrap().set_times(FileTimes::new().set_accessed(UNIX_EPOCH)).unwrap();
    }
}

async fn clear(runtime: &Runtime) -> u64 {
    runtime.maintenance().run("artifacts", soon()).await.unwrap()
}

/// The session is passivated and stays so.
async fn passivate(runtime: &Runtime, session: Session) -> SessionId {
    let id = session.id();
    session.close().await.unwrap();
    drop(session);
    let deadline = soon();
    loop {
        let listed = runtime.sessions(&tenant("acme"), None, 100).await.unwrap();
        let summary = listed.sessions.into_iter().find(|summary| summary.id == id).unwrap();
        if summary.lease_owner.is_none() {
            return id;
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "timed out waiting for the passivation");
        tokio::task::yield_now().await;
    }
}

async fn recorded(runtime: &Runtime, id: SessionId) -> Vec<String> {
    let (artifacts, _) = runtime.artifacts_and_files(&tenant("acme"), id).await.unwrap();
    artifacts.into_iter().map(|artifact| artifact.name.to_string()).collect()
}

#[tokio::test]
async fn expired_artifacts_are_deleted_without_a_revival() {
    let fixture = fixture();
    let runtime = fixture.start().await;
    let resting = runtime.open(spec().artifact("goes", source("it goes"))).await.unwrap();
    let live = runtime.open(spec().artifact("live", source("it lives"))).await.unwrap();
    let resting = passivate(&runtime, resting).await;
    assert_eq!(clear(&runtime).await, 0, "whether the clock is right is not known yet");
    assert_eq!(recorded(&runtime, resting).await, ["goes"]);
    let known = runtime.health().live_sessions;
    until_clock_advances().await;
    assert_eq!(clear(&runtime).await, 1);
    assert_eq!(runtime.health().live_sessions, known, "no session is revived for that");
    assert!(recorded(&runtime, resting).await.is_empty());
    assert!(!dir(&fixture, resting).exists());
    assert_eq!(files(&dir(&fixture, live.id())).len(), 1, "somebody has the other one");
    assert_eq!(recorded(&runtime, live.id()).await, ["live"]);
    // Recently used bytes may be about to be linked.
    assert!(stored(&fixture, "it goes"));
    age(&fixture);
    assert_eq!(clear(&runtime).await, 0);
    assert!(!stored(&fixture, "it goes") && stored(&fixture, "it lives"));
    // The session continues, without them.
    let session = runtime.session(&tenant("acme"), resting).await.unwrap();
    assert_eq!(ask(&session, "are you there?").await, "heard: are you there?");
    session.artifacts().register("goes", source("another")).await.unwrap();
    assert_eq!(recorded(&runtime, resting).await, ["goes"]);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn where_artifacts_never_expire_there_is_no_such_maintenance_task() {
    let artifacts =
        ArtifactSettings { session_ttl: Some(SessionTtl::Unlimited), ..ArtifactSettings::default() };
    let fixture =
        Fixture::with(ExecutorKind::Local, Settings { artifacts: Some(artifacts), ..Settings::default() });
    let runtime = fixture.start().await;
    let error = runtime.maintenance().run("artifacts", soon()).await.unwrap_err();
    assert!(
        error.to_string().starts_with("there is no maintenance task `artifacts`; there are: "),
        "{error}"
    );
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn artifacts_of_another_process_are_not_touched() {
    let fixture = fixture();
    let (first, second) = (fixture.start().await, fixture.start().await);
    let session = first.open(spec().artifact("mine", source("mine"))).await.unwrap();
    for _ in 0..2 {
        assert_eq!(clear(&second).await, 0);
    }
    assert_eq!(recorded(&second, session.id()).await, ["mine"]);
    let id = passivate(&first, session).await;
    until_clock_advances().await;
    assert_eq!(clear(&second).await, 1);
    // The leftovers of a crash after an append, and before one.
    std::fs::create_dir_all(dir(&fixture, id).join("1")).unwrap();
    std::fs::write(dir(&fixture, id).join("1").join(Digest::of_bytes(b"x").to_hex()), "x").unwrap();
    clear(&second).await;
    assert!(!dir(&fixture, id).exists());
    first.shutdown(soon()).await.unwrap();
    second.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_turn_waiting_for_approval_keeps_its_artifacts() {
    let fixture = fixture();
    let approver = approver_fn(|_: ToolCall| async { Authorization::Ask { reason: "may it?".to_owned() } });
    let runtime = Runtime::spawn(fixture.options().approver(approver)).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    let turn = session.send("$ echo done").await.unwrap();
    let mut listener = session.subscribe(0).await.unwrap();
    while session.snapshot().await.unwrap().approvals.is_empty() {
        listener.next().await.unwrap();
    }
    drop((turn, listener));
    session.artifacts().register("used", source("used")).await.unwrap();
    let id = passivate(&runtime, session).await;
    for _ in 0..2 {
        assert_eq!(clear(&runtime).await, 0);
    }
    assert_eq!(recorded(&runtime, id).await, ["used"]);
    assert_eq!(files(&dir(&fixture, id)).len(), 1);
    runtime.shutdown(soon()).await.unwrap();
}

/// The maintenance of one process, and another process that revives sessions, all the time.
#[tokio::test]
async fn recorded_artifacts_exist_whatever_finishes_first() {
    let fixture = fixture();
    let (runtime, other) = (fixture.start().await, fixture.start().await);
    clear(&other).await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        let session = runtime.open(spec().artifact("old", source("old"))).await.unwrap();
        ids.push(passivate(&runtime, session).await);
    }
    for round in 0..6 {
        let use_all = async {
            for id in &ids {
                let session = runtime.session(&tenant("acme"), *id).await.unwrap();
                session.artifacts().register(&format!("new{round}"), source("new")).await.unwrap();
                passivate(&runtime, session).await;
            }
        };
        let clear_all = futures_util::stream::repeat(()).then(|()| clear(&other)).for_each(async |_| {});
        tokio::select! {
            () = use_all => {}
            () = clear_all => {}
        }
        for id in &ids {
            // In this order: the clearing that was dropped may still continue, and removes the links after it has recorded that.
            let links = files(&dir(&fixture, *id));
            let (artifacts, _) = runtime.artifacts_and_files(&tenant("acme"), *id).await.unwrap();
            for content in artifacts.iter().filter_map(|artifact| artifact.content.as_ref()) {
                let name = content.digest.to_hex();
                assert!(links.iter().any(|link| link.ends_with(&name)), "{links:?}");
            }
        }
    }
    // And in the end there is nothing.
    let deadline = soon();
    for id in &ids {
        while dir(&fixture, *id).exists() {
            assert!(!SystemClock.remaining(deadline).is_zero(), "it is not cleared");
            clear(&other).await;
        }
        assert!(recorded(&runtime, *id).await.is_empty());
    }
    runtime.shutdown(soon()).await.unwrap();
    other.shutdown(soon()).await.unwrap();
}
