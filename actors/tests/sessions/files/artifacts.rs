//! What sessions are given, by name: recorded, kept, found again, and gone when it is to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conjure_actors::artifacts::ContentPinner;
use conjure_actors::session::{Session, SessionComponents, SessionError};
use conjure_actors::supervision::Failure;
use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactOptions, Fetch, FetchFuture, FetchRequest, FetchedContent,
    Registration, RegistrationSource, WorkspaceOutputs,
};
use conjure_base::{Digest, TenantId};
use conjure_conversation::{ArtifactContent, EventKind, Rejection};
use conjure_journal::{Epoch, MemoryJournal};
use conjure_store::{FileMode, Store};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::sync::watch;

use crate::files::{artifact_services, equipped};
use crate::scenario::{Host, Scenario, answered, follow, options};
use crate::support::of;

/// A tenant's store, a fake of the web, and the pinned contents.
#[derive(Clone)]
struct Fixture {
    scenario: Scenario,
    dir: Arc<tempfile::TempDir>,
    store: Store,
    options: Arc<ArtifactOptions>,
    fetches: Arc<AtomicU32>,
    /// True if fetches complete.
    may_end: watch::Sender<bool>,
    pins: watch::Sender<Vec<ArtifactContent>>,
    has_parts: bool,
    workspace: Option<std::path::PathBuf>,
}

impl Fixture {
    fn new(options: ArtifactOptions) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self {
            scenario: Scenario::default(),
            dir,
            store,
            options: Arc::new(options),
            fetches: Arc::default(),
            may_end: watch::Sender::new(true),
            pins: watch::Sender::default(),
            has_parts: true,
            workspace: None,
        }
    }

    async fn host(&self) -> Host {
        self.host_over(MemoryJournal::new()).await
    }

    async fn host_over(&self, journal: MemoryJournal) -> Host {
        let fixture = self.clone();
        let factory = equipped(&self.scenario, move |key, parts| {
            let options = Arc::clone(&fixture.options);
            let mut artifacts = artifact_services(key, &fixture.store, options, fixture.clone());
            artifacts.resolver = artifacts.resolver.with_fetch(Arc::new(fixture.clone()));
            let workspace = fixture.workspace.iter();
            let outputs = workspace.map(|path| Arc::new(WorkspaceOutputs::new(path)) as _).collect();
            SessionComponents { artifacts: fixture.has_parts.then_some(artifacts), outputs, ..parts }
        });
        Host::with_factory(of(journal), self.scenario.clone(), options("first"), factory).await
    }

    fn file(&self, name: &str, content: &str) -> std::path::PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Fetch for Fixture {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        async move {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            assert!(!request.url.ends_with("panic"), "the fetch panics");
            self.may_end.subscribe().wait_for(|may| *may).await.unwrap();
            let inserted = request.store.insert_bytes(request.url.as_bytes(), FileMode::Plain)?;
            Ok(FetchedContent {
                content: ArtifactContent { digest: inserted.digest, size: inserted.size },
                content_type: "application/json".to_owned(),
                name: "data.json".to_owned(),
            })
        }
        .boxed()
    }
}

impl ContentPinner for Fixture {
    fn pin(&self, _: Epoch, _: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn retain(&self, _: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        async move {
            self.pins.send_replace(contents);
            Ok(())
        }
        .boxed()
    }
}

fn content(text: &'static str) -> RegistrationSource {
    RegistrationSource::content(text, "text/csv")
}

async fn names(session: &Session) -> Vec<String> {
    let listed = session.artifacts().list().await.unwrap();
    listed.into_iter().map(|artifact| artifact.name.to_string()).collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T, SessionError>) -> ArtifactErrorKind {
    match result {
        Err(SessionError::Artifact(failure)) => failure.kind(),
        other => panic!("{other:?}"),
    }
}

/// At most a millisecond, where the time to live is zero.
async fn until_expired(session: &Session) {
    while !names(session).await.is_empty() {
        tokio::task::yield_now().await;
    }
}

async fn read(session: &Session, uri: &str) -> Vec<u8> {
    let mut content = session.artifacts().open(uri).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = content.stream.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

#[tokio::test]
async fn a_session_is_given_artifacts_which_survive_it() {
    let fixture = Fixture::new(ArtifactOptions::default());
    let journal = MemoryJournal::new();
    let host = fixture.host_over(journal.clone()).await;
    let session = host.open().await;
    let artifacts = session.artifacts();
    let path = fixture.file("sales.csv", "a,b\n1,2\n");
    let sales = artifacts.register("sales", RegistrationSource::file(&path)).await.unwrap();
    assert_eq!((sales.variable.as_str(), sales.size()), ("ARTIFACT_SALES", Some(8)));
    let mut config = Registration::new("config".parse().unwrap(), content("x"));
    config.metadata = BTreeMap::from([("from".to_owned(), json!("a form"))]);
    artifacts.register_with(config).await.unwrap();
    // Later changes of the file have no effect.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read(&session, "file://sales").await, b"a,b\n1,2\n");

    assert_eq!(kind(artifacts.register("sales", content("y")).await), ArtifactErrorKind::Exists);
    assert_eq!(kind(artifacts.register("../sales", content("y")).await), ArtifactErrorKind::InvalidName);
    assert_eq!(
        kind(artifacts.register("gone", RegistrationSource::file(&path)).await),
        ArtifactErrorKind::FileNotFound
    );
    assert_eq!(kind(artifacts.info("gone").await), ArtifactErrorKind::ArtifactNotFound);
    assert_eq!(kind(artifacts.resolve("file://gone").await), ArtifactErrorKind::ArtifactNotFound);
    assert_eq!(kind(artifacts.resolve("ftp://gone").await), ArtifactErrorKind::InvalidUri);
    let absent = artifacts.unregister("gone").await.unwrap_err();
    assert_eq!(absent, SessionError::Rejected(Rejection::NoArtifact { name: "gone".parse().unwrap() }));

    let before = artifacts.list().await.unwrap();
    fixture.pins.subscribe().wait_for(|pinned| pinned.len() == 2).await.unwrap();
    session.kill();
    assert_eq!(artifacts.list().await.unwrap(), before);
    let key = crate::scenario::key(&session);
    drop((session, artifacts));
    host.shutdown().await;

    // After a restart, too.
    let host = fixture.host_over(journal).await;
    let session = host.session(&key);
    assert_eq!(session.artifacts().list().await.unwrap(), before);
    assert_eq!(session.artifacts().info("config").await.unwrap().metadata["from"], "a form");
    assert_eq!(read(&session, "file://config").await, b"x");
    session.artifacts().unregister("sales").await.unwrap();
    fixture.pins.subscribe().wait_for(|pinned| pinned.len() == 1).await.unwrap();
    session.artifacts().cleanup().await.unwrap();
    assert_eq!(names(&session).await, [""; 0]);
    fixture.pins.subscribe().wait_for(Vec::is_empty).await.unwrap();
    host.shutdown().await;
}

#[tokio::test]
async fn artifacts_come_and_go_while_a_turn_runs() {
    let fixture = Fixture::new(ArtifactOptions::default());
    let host = fixture.host().await;
    let session = host.open().await;
    session.artifacts().register("before", content("x")).await.unwrap();
    let mut turn = session.send("call door").await.unwrap();
    fixture.scenario.reached(1).await;
    session.artifacts().register("during", content("y")).await.unwrap();
    session.artifacts().unregister("before").await.unwrap();
    assert_eq!(kind(session.artifacts().register("during", content("y")).await), ArtifactErrorKind::Exists);
    assert_eq!(names(&session).await, ["during"]);
    // It is recorded before the turn's end.
    let events = host.events(&session).await;
    assert!(!events.iter().any(|event| matches!(event, EventKind::TurnFinished { .. })), "{events:?}");
    fixture.scenario.open();
    assert_eq!(follow(&mut turn).await.1, answered());
    assert_eq!(names(&session).await, ["during"]);
    host.shutdown().await;
}

#[tokio::test]
async fn a_url_is_fetched_at_its_first_use_and_what_it_led_to_is_recorded() {
    let fixture = Fixture::new(ArtifactOptions::default());
    let host = fixture.host().await;
    let session = host.open().await;
    let artifacts = session.artifacts();
    let fetches = || fixture.fetches.load(Ordering::SeqCst);
    artifacts.register("api", RegistrationSource::url("https://a.example/data")).await.unwrap();
    assert_eq!((artifacts.info("api").await.unwrap().size(), fetches()), (None, 0));
    assert_eq!(read(&session, "file://api").await, b"https://a.example/data");
    let known = artifacts.info("api").await.unwrap();
    assert_eq!((known.size(), known.content_type.as_str(), fetches()), (Some(22), "application/json", 1));
    // The declared media type takes precedence over the server's.
    let declared =
        Registration::new("export".parse().unwrap(), RegistrationSource::url("https://a.example/export"));
    let declared = Registration { content_type: Some("text/csv".to_owned()), ..declared };
    artifacts.register_with(declared).await.unwrap();
    assert_eq!(artifacts.resolve("file://export").await.unwrap().content_type, "text/csv");
    let known = artifacts.info("export").await.unwrap();
    assert_eq!((known.size(), known.content_type.as_str()), (Some(24), "text/csv"));
    // One that is not registered is found, and nothing is recorded of it.
    let events = host.events(&session).await.len();
    assert_eq!(read(&session, "https://a.example/other").await, b"https://a.example/other");
    assert_eq!(host.events(&session).await.len(), events);
    host.shutdown().await;
}

#[tokio::test]
async fn running_work_ends_with_its_caller_its_panic_or_the_session() {
    let fixture = Fixture::new(ArtifactOptions::default());
    let host = fixture.host().await;
    let session = host.open().await;
    let artifacts = session.artifacts();
    // A crash of one request is no other's.
    let lost = artifacts.resolve("https://a.example/panic").await.unwrap_err();
    assert_eq!(lost, SessionError::Lost);
    artifacts.register("a", content("x")).await.unwrap();
    // The session's end ends what is under way.
    fixture.may_end.send_replace(false);
    let before = fixture.fetches.load(Ordering::SeqCst);
    let resolving = artifacts.resolve("https://a.example/data");
    tokio::pin!(resolving);
    while fixture.fetches.load(Ordering::SeqCst) == before {
        assert!(resolving.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    session.kill();
    assert_eq!(resolving.await.unwrap_err(), SessionError::Lost);
    fixture.may_end.send_replace(true);
    assert_eq!(read(&session, "file://a").await, b"x");
    artifacts.register("b", content("y")).await.unwrap();
    assert_eq!(names(&session).await, ["a", "b"]);
    host.shutdown().await;
}

#[tokio::test]
async fn unused_artifacts_expire() {
    let session_ttl = Some(Duration::ZERO);
    let fixture = Fixture::new(ArtifactOptions { session_ttl, ..ArtifactOptions::default() });
    let host = fixture.host().await;
    let session = host.open().await;
    let artifacts = session.artifacts();
    artifacts.register("a", content("x")).await.unwrap();
    until_expired(&session).await;
    assert_eq!(kind(artifacts.resolve("file://a").await), ArtifactErrorKind::ArtifactNotFound);
    // Its name is free, and its expiry is recorded when the session is used again.
    artifacts.register("a", content("y")).await.unwrap();
    until_expired(&session).await;
    follow(&mut session.send("hello").await.unwrap()).await;
    let events = host.events(&session).await;
    let deleted =
        events.iter().filter(|event| matches!(event, EventKind::ArtifactUnregistered { .. })).count();
    assert_eq!(deleted, 2);
    host.shutdown().await;

    let fixture = Fixture::new(ArtifactOptions { session_ttl: None, ..ArtifactOptions::default() });
    let host = fixture.host().await;
    let session = host.open().await;
    session.artifacts().register("a", content("x")).await.unwrap();
    follow(&mut session.send("hello").await.unwrap()).await;
    assert_eq!(names(&session).await, ["a"]);
    host.shutdown().await;
}

#[tokio::test]
async fn a_produced_file_becomes_another_sessions_artifact_but_no_other_tenants() {
    let fixture = Fixture::new(ArtifactOptions::default());
    let workspace = fixture.dir.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let fixture = Fixture { workspace: Some(workspace.clone()), ..fixture };
    let host = fixture.host().await;
    let session = host.open().await;
    let mut turn = session.send("call door").await.unwrap();
    fixture.scenario.reached(1).await;
    std::fs::write(workspace.join("report.csv"), "region,total\n").unwrap();
    fixture.scenario.open();
    follow(&mut turn).await;
    let files = session.files().await.unwrap();
    assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["report.csv"]);
    assert_eq!(files[0].digest, Some(Digest::of_bytes(b"region,total\n")));

    let other = host.open().await;
    let source = session.store_file(&files[0]).await.unwrap();
    other.artifacts().register("report", source.clone()).await.unwrap();
    std::fs::remove_file(workspace.join("report.csv")).unwrap();
    assert_eq!(read(&other, "file://report").await, b"region,total\n");
    assert!(matches!(
        session.store_file(&files[0]).await,
        Err(SessionError::Output(_) | SessionError::Artifact(_))
    ));
    host.shutdown().await;

    // Another tenant has another store.
    let other_fixture = Fixture::new(ArtifactOptions::default());
    let host = other_fixture.host().await;
    let session = host.open().await;
    assert_eq!(session.tenant(), &TenantId::new("acme").unwrap());
    assert_eq!(kind(session.artifacts().register("report", source).await), ArtifactErrorKind::Unsupported);
    host.shutdown().await;
}

#[tokio::test]
async fn a_session_without_artifacts_says_so() {
    let fixture = Fixture { has_parts: false, ..Fixture::new(ArtifactOptions::default()) };
    let host = fixture.host().await;
    let session = host.open().await;
    let refused = session.artifacts().register("a", content("x")).await.unwrap_err();
    assert_eq!(refused.to_string(), "the session has no artifacts: they are switched off");
    assert_eq!(names(&session).await, [""; 0]);
    host.shutdown().await;
}
