//! The contents of artifacts are held before it is recorded that the session has them, and what is kept is what is recorded, and no more.

use std::sync::Arc;

use conjure_actors::artifacts::ContentPinner;
use conjure_actors::session::{Session, SessionComponents, SessionError};
use conjure_actors::supervision::Failure;
use conjure_artifact::{ArtifactError, ArtifactErrorKind, RegistrationSource};
use conjure_base::Digest;
use conjure_conversation::{ArtifactContent, EventKind};
use conjure_journal::{Epoch, MemoryJournal};
use conjure_store::{Store, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::files::{artifact_services, equipped};
use crate::scenario::{Host, Scenario, follow, options};
use crate::support::{FailingJournal, of};

/// The behaviour of a fake pin store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PinBehaviour {
    Works,
    Fails,
    /// A pin request waits until the behaviour changes.
    Blocks,
}

/// A fake pin store that records its calls: `hold EPOCH CONTENT`, `keep EPOCH CONTENT...`.
#[derive(Clone)]
struct Fixture {
    scenario: Scenario,
    _dir: Arc<tempfile::TempDir>,
    store: Store,
    calls: watch::Sender<Vec<String>>,
    behaviour: watch::Sender<PinBehaviour>,
}

impl Fixture {
    fn new() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let store = Store::open(&dir.path().join("store")).unwrap();
        let (calls, behaviour) = (watch::Sender::default(), watch::Sender::new(PinBehaviour::Works));
        Self { scenario: Scenario::default(), _dir: dir, store, calls, behaviour }
    }

    async fn host(&self, journal: &FailingJournal) -> Host {
        let fixture = self.clone();
        let factory = equipped(&self.scenario, move |key, parts| {
            let artifacts = artifact_services(key, &fixture.store, Arc::default(), fixture.clone());
            SessionComponents { artifacts: Some(artifacts), ..parts }
        });
        Host::with_factory(of(journal.clone()), self.scenario.clone(), options("first"), factory).await
    }

    /// Waits until this is the last call.
    async fn until_last_call(&self, last: &str) {
        let is_it = |calls: &Vec<String>| calls.last().is_some_and(|calls| calls == last);
        self.calls.subscribe().wait_for(is_it).await.unwrap();
    }

    fn note(&self, calls: String) {
        self.calls.send_modify(|all| all.push(calls));
    }
}

/// The text of a content, which is one letter.
fn letter(content: &ArtifactContent) -> char {
    ('a'..='z').find(|letter| Digest::of_bytes(letter.to_string().as_bytes()) == content.digest).unwrap()
}

impl ContentPinner for Fixture {
    fn pin(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        let calls = format!("hold {epoch} {}", letter(&content));
        async move {
            self.note(calls);
            match *self
                .behaviour
                .subscribe()
                .wait_for(|behaviour| *behaviour != PinBehaviour::Blocks)
                .await
                .unwrap()
            {
                PinBehaviour::Fails => Err(StoreError::NotFound { digest: content.digest }.into()),
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
            if *self.behaviour.borrow() == PinBehaviour::Fails {
                Err("the test wants it".into())
            } else {
                Ok(())
            }
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
async fn unpinned_content_is_not_recorded() {
    let fixture = Fixture::new();
    let host = fixture.host(&FailingJournal::new(MemoryJournal::new())).await;
    let session = host.open().await;
    session.artifacts().list().await.unwrap();
    fixture.until_last_call("keep 1 ").await;
    fixture.behaviour.send_replace(PinBehaviour::Fails);
    assert_eq!(kind(register(&session, "a").await), ArtifactErrorKind::Store);
    assert_eq!(registered(&host, &session).await, 0);
    // While it is being held, neither; then its name is free.
    fixture.behaviour.send_replace(PinBehaviour::Blocks);
    let calls = fixture.calls.borrow().len();
    let registering = register(&session, "a");
    tokio::pin!(registering);
    while fixture.calls.borrow().len() == calls {
        assert!(registering.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(registered(&host, &session).await, 0);
    fixture.behaviour.send_replace(PinBehaviour::Works);
    registering.await.unwrap();
    fixture.until_last_call("keep 1 a").await;
    // The next incarnation starts with the recorded pins, whatever was pinned before.
    session.kill();
    session.artifacts().list().await.unwrap();
    fixture.calls.subscribe().wait_for(|calls| calls.len() == 5).await.unwrap();
    let calls = fixture.calls.borrow().clone();
    assert_eq!(calls[..4], ["keep 1 ", "hold 1 a", "hold 1 a", "keep 1 a"]);
    assert!(calls[4].starts_with("keep ") && calls[4].ends_with(" a") && calls[4] != calls[3], "{calls:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn pinned_content_stays_while_another_pin_is_released() {
    let fixture = Fixture::new();
    let host = fixture.host(&FailingJournal::new(MemoryJournal::new())).await;
    let session = host.open().await;
    register(&session, "a").await.unwrap();
    fixture.until_last_call("keep 1 a").await;
    fixture.behaviour.send_replace(PinBehaviour::Blocks);
    let (letting_go, other) = (session.clone(), session.clone());
    let registering = async { register(&session, "b").await.unwrap() };
    let meanwhile = async {
        fixture.until_last_call("hold 1 b").await;
        letting_go.artifacts().unregister("a").await.unwrap();
        // Pins are updated after the end of this.
        follow(&mut other.send("hello").await.unwrap()).await;
        fixture.behaviour.send_replace(PinBehaviour::Works);
    };
    tokio::join!(registering, meanwhile);
    fixture.until_last_call("keep 1 b").await;
    follow(&mut session.send("hello").await.unwrap()).await;
    let calls = fixture.calls.borrow().clone();
    let pinned_at = calls.iter().position(|calls| calls == "hold 1 b").unwrap();
    assert!(calls[pinned_at + 1..].iter().all(|calls| calls == "keep 1 b"), "{calls:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_dropped_caller_releases_no_pin_that_is_being_recorded() {
    let fixture = Fixture::new();
    let journal = FailingJournal::new(MemoryJournal::new());
    let host = fixture.host(&journal).await;
    let session = host.open().await;
    session.artifacts().list().await.unwrap();
    fixture.until_last_call("keep 1 ").await;
    let door = journal.shut();
    {
        let registering = register(&session, "a");
        tokio::pin!(registering);
        tokio::select! {
            _ = &mut registering => panic!("nothing is recorded yet"),
            () = door.reached(1) => {}
        }
    }
    // Its name stays in use until the expiry is recorded.
    assert_eq!(kind(register(&session, "a").await), ArtifactErrorKind::Exists);
    door.open();
    fixture.until_last_call("keep 1 a").await;
    assert_eq!(session.artifacts().list().await.unwrap().len(), 1);
    host.shutdown().await;
}

#[tokio::test]
async fn failed_pin_updates_are_retried_and_completed_ones_are_not() {
    let fixture = Fixture::new();
    fixture.behaviour.send_replace(PinBehaviour::Fails);
    let host = fixture.host(&FailingJournal::new(MemoryJournal::new())).await;
    let session = host.open().await;
    for times in 1..=3 {
        follow(&mut session.send("hello").await.unwrap()).await;
        fixture.calls.subscribe().wait_for(|calls| calls.len() > times).await.unwrap();
    }
    fixture.behaviour.send_replace(PinBehaviour::Works);
    let calls = fixture.calls.borrow().len();
    follow(&mut session.send("hello").await.unwrap()).await;
    fixture.calls.subscribe().wait_for(|all| all.len() > calls).await.unwrap();
    let calls = fixture.calls.borrow().len();
    for _ in 0..3 {
        follow(&mut session.send("hello").await.unwrap()).await;
        session.snapshot().await.unwrap();
    }
    assert_eq!(fixture.calls.borrow().len(), calls);
    host.shutdown().await;
}
