//! The contents of artifacts are held before it is recorded that the session has them, and what is kept is what is recorded, and no more.

use std::sync::Arc;

use conjure_actors::artifacts::{ArtifactServices, ContentPinner};
use conjure_actors::session::{Session, SessionComponents, SessionError, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_artifact::{
    ArtifactError, ArtifactErrorKind, ArtifactIngestor, ArtifactOptions, ReferenceResolver,
    RegistrationSource,
};
use conjure_base::Digest;
use conjure_conversation::{ArtifactContent, EventKind};
use conjure_journal::{Epoch, MemoryJournal};
use conjure_store::{Store, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::support::{Faulty, of};
use crate::world::{Host, Stage, follow, options};

/// What becomes of what a keeper is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Works,
    Fails,
    /// Whoever has something held waits until it is another.
    HoldsWait,
}

/// A keeper that notes what it is asked: `hold EPOCH CONTENT`, `keep EPOCH CONTENT...`.
#[derive(Clone)]
struct Bench {
    stage: Stage,
    _folder: Arc<tempfile::TempDir>,
    store: Store,
    calls: watch::Sender<Vec<String>>,
    mood: watch::Sender<Mood>,
}

impl Bench {
    fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let store = Store::open(&folder.path().join("store")).unwrap();
        let (calls, mood) = (watch::Sender::default(), watch::Sender::new(Mood::Works));
        Self { stage: Stage::default(), _folder: folder, store, calls, mood }
    }

    async fn host(&self, journal: &Faulty) -> Host {
        let factory = Arc::new(self.clone());
        Host::fitted(of(journal.clone()), self.stage.clone(), options("first"), factory).await
    }

    /// Until it was asked this last.
    async fn asked_last(&self, last: &str) {
        let is_it = |calls: &Vec<String>| calls.last().is_some_and(|calls| calls == last);
        self.calls.subscribe().wait_for(is_it).await.unwrap();
    }

    fn note(&self, calls: String) {
        self.calls.send_modify(|all| all.push(calls));
    }
}

/// What a content says, which is one letter.
fn letter(content: &ArtifactContent) -> char {
    ('a'..='z').find(|letter| Digest::of_bytes(letter.to_string().as_bytes()) == content.digest).unwrap()
}

impl ContentPinner for Bench {
    fn pin(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        let calls = format!("hold {epoch} {}", letter(&content));
        async move {
            self.note(calls);
            match *self.mood.subscribe().wait_for(|mood| *mood != Mood::HoldsWait).await.unwrap() {
                Mood::Fails => Err(StoreError::NotFound { digest: content.digest }.into()),
                _ => Ok(()),
            }
        }
        .boxed()
    }

    fn retain(&self, epoch: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        let mut letters: Vec<char> = contents.iter().map(letter).collect();
        letters.sort_unstable();
        let calls = format!("keep {epoch} {}", letters.iter().collect::<String>());
        async move {
            self.note(calls);
            if *self.mood.borrow() == Mood::Fails { Err("the test wants it".into()) } else { Ok(()) }
        }
        .boxed()
    }
}

impl SessionFactory for Bench {
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let (tenant, artifact_options) = (setup.key.tenant.clone(), Arc::new(ArtifactOptions::default()));
            let parts = self.stage.build(setup).await?;
            let artifacts = ArtifactServices {
                ingestor: ArtifactIngestor::new(Arc::clone(&artifact_options)),
                resolver: ReferenceResolver::new(tenant, self.store.clone(), artifact_options),
                pinner: Arc::new(self.clone()),
                quota: Arc::new(()),
            };
            Ok(SessionComponents { artifacts: Some(artifacts), ..parts })
        }
        .boxed()
    }
}

async fn register(session: &Session, name: &'static str) -> Result<(), SessionError> {
    session.artifacts().register(name, RegistrationSource::content(name, "text/plain")).await.map(drop)
}

fn kind(result: Result<(), SessionError>) -> ArtifactErrorKind {
    match result {
        Err(SessionError::Artifact(failure)) => failure.kind(),
        other => panic!("{other:?}"),
    }
}

async fn registered(host: &Host, session: &Session) -> usize {
    let events = host.events(session).await;
    events.iter().filter(|event| matches!(event, EventKind::ArtifactRegistered { .. })).count()
}

#[tokio::test]
async fn what_is_not_held_is_not_recorded() {
    let bench = Bench::new();
    let host = bench.host(&Faulty::new(MemoryJournal::new())).await;
    let session = host.open().await;
    session.artifacts().list().await.unwrap();
    bench.asked_last("keep 1 ").await;
    bench.mood.send_replace(Mood::Fails);
    assert_eq!(kind(register(&session, "a").await), ArtifactErrorKind::Store);
    assert_eq!(registered(&host, &session).await, 0);
    // While it is being held, neither; then its name is free.
    bench.mood.send_replace(Mood::HoldsWait);
    let calls = bench.calls.borrow().len();
    let registering = register(&session, "a");
    tokio::pin!(registering);
    while bench.calls.borrow().len() == calls {
        assert!(registering.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(registered(&host, &session).await, 0);
    bench.mood.send_replace(Mood::Works);
    registering.await.unwrap();
    bench.asked_last("keep 1 a").await;
    // Whoever comes next begins with what is recorded, whatever was held before.
    session.kill();
    session.artifacts().list().await.unwrap();
    bench.calls.subscribe().wait_for(|calls| calls.len() == 5).await.unwrap();
    let calls = bench.calls.borrow().clone();
    assert_eq!(calls[..4], ["keep 1 ", "hold 1 a", "hold 1 a", "keep 1 a"]);
    assert!(calls[4].starts_with("keep ") && calls[4].ends_with(" a") && calls[4] != calls[3], "{calls:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn what_is_held_is_kept_while_something_else_is_let_go() {
    let bench = Bench::new();
    let host = bench.host(&Faulty::new(MemoryJournal::new())).await;
    let session = host.open().await;
    register(&session, "a").await.unwrap();
    bench.asked_last("keep 1 a").await;
    bench.mood.send_replace(Mood::HoldsWait);
    let (letting_go, other) = (session.clone(), session.clone());
    let registering = async { register(&session, "b").await.unwrap() };
    let meanwhile = async {
        bench.asked_last("hold 1 b").await;
        letting_go.artifacts().unregister("a").await.unwrap();
        // What is kept is put in order behind the end of this.
        follow(&mut other.send("hello").await.unwrap()).await;
        bench.mood.send_replace(Mood::Works);
    };
    tokio::join!(registering, meanwhile);
    bench.asked_last("keep 1 b").await;
    follow(&mut session.send("hello").await.unwrap()).await;
    let calls = bench.calls.borrow().clone();
    let held = calls.iter().position(|calls| calls == "hold 1 b").unwrap();
    assert!(calls[held + 1..].iter().all(|calls| calls == "keep 1 b"), "{calls:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn whoever_stops_waiting_lets_go_of_nothing_that_is_being_recorded() {
    let bench = Bench::new();
    let journal = Faulty::new(MemoryJournal::new());
    let host = bench.host(&journal).await;
    let session = host.open().await;
    session.artifacts().list().await.unwrap();
    bench.asked_last("keep 1 ").await;
    let door = journal.shut();
    {
        let registering = register(&session, "a");
        tokio::pin!(registering);
        tokio::select! {
            _ = &mut registering => panic!("nothing is recorded yet"),
            () = door.reached(1) => {}
        }
    }
    // Its name is taken for as long as nobody knows.
    assert_eq!(kind(register(&session, "a").await), ArtifactErrorKind::Exists);
    door.open();
    bench.asked_last("keep 1 a").await;
    assert_eq!(session.artifacts().list().await.unwrap().len(), 1);
    host.shutdown().await;
}

#[tokio::test]
async fn what_could_not_be_put_in_order_is_tried_again_and_what_is_in_order_is_left_alone() {
    let bench = Bench::new();
    bench.mood.send_replace(Mood::Fails);
    let host = bench.host(&Faulty::new(MemoryJournal::new())).await;
    let session = host.open().await;
    for times in 1..=3 {
        follow(&mut session.send("hello").await.unwrap()).await;
        bench.calls.subscribe().wait_for(|calls| calls.len() > times).await.unwrap();
    }
    bench.mood.send_replace(Mood::Works);
    let calls = bench.calls.borrow().len();
    follow(&mut session.send("hello").await.unwrap()).await;
    bench.calls.subscribe().wait_for(|all| all.len() > calls).await.unwrap();
    let calls = bench.calls.borrow().len();
    for _ in 0..3 {
        follow(&mut session.send("hello").await.unwrap()).await;
        session.snapshot().await.unwrap();
    }
    assert_eq!(bench.calls.borrow().len(), calls);
    host.shutdown().await;
}
