//! The files that turns produce: asked for once behind each turn that ran tools, recorded, and told before its end is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use conjure_actors::session::{Session, SessionComponents, SessionError};
use conjure_artifact::{FinishedTurnInfo, OutputContent, OutputError, OutputStore, TurnOutputs};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{Completeness, EventKind, FileChange, FileSource, SessionEventKind, SessionFile};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;

use crate::files::equipped;
use crate::scenario::{Host, Scenario, answered, follow, options};
use crate::support::{SECOND, memory};

/// The behaviour of a fake output store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreBehaviour {
    Succeeds,
    Fails,
    Panics,
    Hangs,
}

/// One file for each listed turn.
#[derive(Debug, Clone)]
struct FakeOutputs {
    source: FileSource,
    /// The next behaviours; afterwards it succeeds.
    plan: Arc<Mutex<VecDeque<StoreBehaviour>>>,
    calls: watch::Sender<Vec<FinishedTurnInfo>>,
}

impl FakeOutputs {
    fn of(source: FileSource) -> Self {
        Self { source, plan: Arc::default(), calls: watch::Sender::new(Vec::new()) }
    }

    fn plan(&self, plan: impl IntoIterator<Item = StoreBehaviour>) {
        self.plan.lock().unwrap().extend(plan);
    }

    fn calls(&self) -> usize {
        self.calls.borrow().len()
    }
}

fn file(source: FileSource, number: u64, record: &FinishedTurnInfo) -> SessionFile {
    SessionFile {
        source,
        id: format!("{source}-{number}.txt"),
        name: format!("{source}-{number}.txt"),
        size: Some(number),
        content_type: "text/plain".to_owned(),
        digest: None,
        change: FileChange::Created,
        turn: record.turn,
    }
}

impl OutputStore for FakeOutputs {
    fn source(&self) -> FileSource {
        self.source
    }

    fn turn_outputs<'a>(
        &'a self,
        turn: &'a FinishedTurnInfo,
    ) -> BoxFuture<'a, Result<TurnOutputs, OutputError>> {
        async move {
            self.calls.send_modify(|calls| calls.push(turn.clone()));
            let behaviour = self.plan.lock().unwrap().pop_front().unwrap_or(StoreBehaviour::Succeeds);
            match behaviour {
                StoreBehaviour::Succeeds => {}
                StoreBehaviour::Fails => {
                    return Err(OutputError::Failed { name: "all".to_owned(), reason: "no".to_owned() });
                }
                StoreBehaviour::Panics => panic!("the store panics"),
                StoreBehaviour::Hangs => std::future::pending().await,
            }
            let files = vec![file(self.source, turn.turn.number(), turn)];
            Ok(TurnOutputs { files, completeness: Completeness::Complete })
        }
        .boxed()
    }

    fn open<'a>(&'a self, file: &'a SessionFile) -> BoxFuture<'a, Result<OutputContent, OutputError>> {
        async move {
            let stream = stream::iter([Ok(bytes::Bytes::from(file.id.clone()))]).boxed();
            Ok(OutputContent {
                name: file.name.clone(),
                content_type: file.content_type.clone(),
                size: file.size,
                stream,
            })
        }
        .boxed()
    }
}

async fn host(stores: &[FakeOutputs]) -> (Host, Session) {
    let scenario = Scenario::default();
    let stores = stores.to_vec();
    let factory = equipped(&scenario, move |_, parts| {
        let outputs = stores.iter().map(|store| Arc::new(store.clone()) as _).collect();
        SessionComponents { outputs, ..parts }
    });
    let host = Host::with_factory(memory(), scenario, options("first"), factory).await;
    let session = host.open().await;
    (host, session)
}

fn names(files: &[SessionFile]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).collect()
}

/// How often it was recorded what a turn produced, and whether that was all.
async fn recorded(host: &Host, session: &Session) -> Vec<Completeness> {
    let events = host.events(session).await;
    let produced = events.iter().filter_map(|event| match event {
        EventKind::FilesProduced { completeness, .. } => Some(*completeness),
        _ => None,
    });
    produced.collect()
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_turn_are_listed_before_its_end_is_reported() {
    let stores = [FakeOutputs::of(FileSource::Workspace), FakeOutputs::of(FileSource::Hosted)];
    let (host, session) = host(&stores).await;
    assert_eq!(follow(&mut session.send("hello").await.unwrap()).await.1, answered());
    assert_eq!((stores[0].calls(), session.files().await.unwrap()), (0, Vec::new()));
    assert_eq!(recorded(&host, &session).await, []);

    let mut subscription = session.subscribe(0).await.unwrap();
    assert_eq!(follow(&mut session.send("call write").await.unwrap()).await.1, answered());
    let files = session.files().await.unwrap();
    assert_eq!(names(&files), ["workspace-2.txt", "hosted-2.txt"]);
    assert_eq!(recorded(&host, &session).await, [Completeness::Complete]);
    let record = stores[0].calls.borrow()[0].clone();
    assert_eq!((record.turn.number(), record.known.len()), (2, 0));
    assert!(record.messages.last().unwrap().text().contains("heard"), "{record:?}");

    // It is reported after the turn's end.
    let mut reported = Vec::new();
    while reported.last() != Some(&"files") {
        let conjure_actors::session::Update::Recorded(event) = subscription.next().await.unwrap() else {
            continue;
        };
        match event.kind {
            SessionEventKind::SessionStatusIdle { .. } => reported.push("idle"),
            SessionEventKind::SessionFilesProduced { .. } => reported.push("files"),
            _ => {}
        }
    }
    assert_eq!(reported, ["idle", "idle", "files"]);

    follow(&mut session.send("call write").await.unwrap()).await;
    assert_eq!(stores[0].calls.borrow()[1].known, files);
    assert_eq!(session.files().await.unwrap().len(), 4);
    // The same after it was passivated.
    session.close().await.unwrap();
    assert_eq!(session.files().await.unwrap().len(), 4);
    assert_eq!(stores[0].calls(), 2);
    host.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_listing_does_not_fail_the_turn_and_is_retried() {
    let stores = [FakeOutputs::of(FileSource::Workspace), FakeOutputs::of(FileSource::Hosted)];
    let (host, session) = host(&stores).await;
    for behaviour in [StoreBehaviour::Fails, StoreBehaviour::Panics, StoreBehaviour::Hangs] {
        let before = recorded(&host, &session).await.len();
        stores[0].plan([behaviour]);
        assert_eq!(
            follow(&mut session.send("call write").await.unwrap()).await.1,
            answered(),
            "{behaviour:?}"
        );
        assert_eq!(recorded(&host, &session).await.len(), before, "{behaviour:?}");
        // Before the next turn it is tried again, here with success.
        assert_eq!(follow(&mut session.send("hello").await.unwrap()).await.1, answered());
        let now = recorded(&host, &session).await;
        assert_eq!((now.len(), now.last()), (before + 1, Some(&Completeness::Complete)), "{behaviour:?}");
    }
    assert_eq!(session.files().await.unwrap().len(), 6);
    // A repeatedly failing listing is skipped, and that is recorded.
    stores[1].plan([StoreBehaviour::Fails, StoreBehaviour::Fails]);
    follow(&mut session.send("call write").await.unwrap()).await;
    follow(&mut session.send("hello").await.unwrap()).await;
    assert_eq!(recorded(&host, &session).await.last(), Some(&Completeness::Truncated));
    assert_eq!(session.files().await.unwrap().len(), 7);
    // Also where nothing is left.
    let before = recorded(&host, &session).await.len();
    for store in &stores {
        store.plan([StoreBehaviour::Fails, StoreBehaviour::Fails]);
    }
    follow(&mut session.send("call write").await.unwrap()).await;
    assert_eq!(recorded(&host, &session).await.len(), before);
    follow(&mut session.send("hello").await.unwrap()).await;
    assert_eq!(recorded(&host, &session).await[before..], [Completeness::Truncated]);
    assert_eq!(session.files().await.unwrap().len(), 7);
    host.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_a_turns_end_and_its_file_listing_loses_no_file() {
    let store = FakeOutputs::of(FileSource::Workspace);
    let (host, session) = host(std::slice::from_ref(&store)).await;
    store.plan([StoreBehaviour::Hangs]);
    let mut turn = session.send("call write").await.unwrap();
    store.calls.subscribe().wait_for(|calls| calls.len() == 1).await.unwrap();
    // The end of the turn is recorded, and not yet reported.
    let events = host.events(&session).await;
    assert!(matches!(events.last(), Some(EventKind::TurnFinished { .. })), "{events:?}");
    session.kill();
    assert_eq!(follow(&mut turn).await.1, answered());
    // A request through the handle retries the listing.
    store.calls.subscribe().wait_for(|calls| calls.len() == 2).await.unwrap();
    // This waits until nothing is under way, and refers to nothing that there is.
    let result = session.decide(conjure_base::CallId::new("none"), conjure_conversation::Decision::Allow);
    assert!(result.await.is_err());
    assert_eq!(names(&session.files().await.unwrap()), ["workspace-1.txt"]);
    assert_eq!(recorded(&host, &session).await, [Completeness::Complete]);
    host.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_lists_its_files_within_a_short_deadline() {
    let store = FakeOutputs::of(FileSource::Workspace);
    let (host, session) = host(std::slice::from_ref(&store)).await;
    let mut turn = session.send("call slow").await.unwrap();
    host_until_started(&host).await;
    session.interrupt().await.unwrap();
    follow(&mut turn).await;
    assert_eq!(names(&session.files().await.unwrap()), ["workspace-1.txt"]);
    follow(&mut session.send("hello").await.unwrap()).await;
    store.plan([StoreBehaviour::Hangs]);
    let mut turn = session.send("call write").await.unwrap();
    store.calls.subscribe().wait_for(|calls| calls.len() == 2).await.unwrap();
    let late = SystemClock.deadline(11 * SECOND);
    session.interrupt().await.unwrap();
    follow(&mut turn).await;
    assert!(!SystemClock.remaining(late).is_zero(), "the wait was too long");
    host.shutdown().await;
}

async fn host_until_started(host: &Host) {
    while host.scenario.started.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_is_opened_by_the_session_that_produced_it() {
    let store = FakeOutputs::of(FileSource::Workspace);
    let (host, session) = host(std::slice::from_ref(&store)).await;
    follow(&mut session.send("call write").await.unwrap()).await;
    let file = session.files().await.unwrap().remove(0);
    let mut content = session.open_file(&file).await.unwrap();
    assert_eq!((content.name.as_str(), content.size), ("workspace-1.txt", Some(1)));
    assert_eq!(content.stream.next().await.unwrap().unwrap(), "workspace-1.txt");
    // Of another session, and of a store that there is not.
    let other = host.open().await;
    let foreign = other.open_file(&file).await.unwrap_err();
    assert!(matches!(&foreign, SessionError::Output(OutputError::NotFound { .. })), "{foreign:?}");
    let hosted = SessionFile { source: FileSource::Hosted, ..file };
    assert!(matches!(
        session.open_file(&hosted).await,
        Err(SessionError::Output(OutputError::NotFound { .. }))
    ));
    host.shutdown().await;
}
