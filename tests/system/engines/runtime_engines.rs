//! The container engine is killed during sessions. Each test kills its own engine.
//!
//! Calls end as what they are, sessions in jails and what is told of all of them continue, workspaces are there, each request of the
//! model's is valid, and nothing is left, neither by the engine alone nor by a host that was killed with it.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use conjure::config::ExecutorKind;
use conjure::conversation::{CallOutcome, TurnStop};
use conjure::model::BlockKind;
use conjure::{
    Clock as _, Runtime, RuntimeOptions, Session, SessionEventKind, SessionSpec, Settings, SystemClock,
    TurnEvent, TurnHandle, Update,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::KillOnDrop;

use crate::image::{Content, TestImage, test_image_of};
use crate::own_engine::{OwnEngine, Part};
use crate::processes::bearing;
use crate::rerun::{rerun, test_parameters};
use crate::runtime::fixture::{Fixture, soon, spec, tenant};
use crate::runtime::open_failpoints::pause;
use crate::runtime::programs::{SentRequests, bash};

/// As little as calls need: the engine copies it for each container.
const SHELL: Content = Content {
    packages: &["bash"],
    files: &[
        ("/usr/bin/dash", "/usr/bin/sh"),
        ("/usr/bin/sleep", "/usr/bin/sleep"),
        ("/usr/bin/cat", "/usr/bin/cat"),
    ],
    changes: &["USER sandbox", "WORKDIR /workspace", "ENV PATH=/usr/bin"],
};

/// A host whose sessions work in containers of an engine of its own, unless they say otherwise.
struct EngineFixture {
    fixture: Fixture,
    image: TestImage,
    /// Ends last.
    engine: OwnEngine,
}

impl EngineFixture {
    async fn new() -> Option<Self> {
        let engine = OwnEngine::with_disk("1g").await?;
        let image = test_image_of(&engine.address(), &SHELL)?;
        let fixture = Fixture::with(ExecutorKind::Docker, of(image.name(), &engine.address().to_string()));
        Some(Self { fixture, image, engine })
    }

    fn workspace(&self, session: &Session) -> PathBuf {
        self.fixture.data().join(format!("tenants/acme/workspaces/{}/workspace", session.id().stored_name()))
    }

    async fn ids(&self) -> Vec<String> {
        self.engine.containers().await.into_iter().filter_map(|container| container.id).collect()
    }

    /// Ends when the engine has none of these any more.
    async fn until_gone(&self, before: &[String]) {
        let deadline = soon();
        while self.ids().await.iter().any(|id| before.contains(id)) {
            assert!(!SystemClock.remaining(deadline).is_zero(), "containers that were lost are left");
            pause().await;
        }
    }

    /// Ends when the engine has this many containers.
    async fn until_there_are(&self, count: usize) {
        let deadline = soon();
        loop {
            let there = self.ids().await.len();
            if there == count {
                return;
            }
            assert!(!SystemClock.remaining(deadline).is_zero(), "{there} containers, and not {count}");
            pause().await;
        }
    }
}

fn of(image: &str, engine: &str) -> Settings {
    Settings { image: Some(image.to_owned()), engine: Some(engine.to_owned()), ..Settings::default() }
}

async fn start(fixture: &Fixture, sent: &SentRequests) -> Runtime {
    Runtime::spawn(RuntimeOptions::from(fixture.config()).model("program", sent.model())).await.unwrap()
}

fn in_a_jail() -> SessionSpec {
    spec().sandbox("jail")
}

/// Waits for the end of a turn, which must end well: what its calls came to.
pub(crate) async fn results(turn: &mut TurnHandle) -> Vec<String> {
    let mut results = Vec::new();
    loop {
        match turn.next().await.unwrap().unwrap() {
            TurnEvent::Ended { stop, .. } => {
                assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
                return results;
            }
            TurnEvent::Update(Update::Recorded(event)) => {
                if let SessionEventKind::AgentToolResult { result, .. } = event.kind {
                    let BlockKind::ToolResult { text, .. } = result.kind() else { panic!("{result:?}") };
                    results.push(text.clone());
                }
            }
            _ => {}
        }
    }
}

async fn send(session: &Session, commands: &[&str]) -> TurnHandle {
    let answers: Vec<Value> = commands.iter().map(|command| json!([bash(command)])).collect();
    session.send(Value::from(answers).to_string()).await.unwrap()
}

/// The outcome of one command.
async fn run(session: &Session, command: &str) -> String {
    results(&mut send(session, &[command]).await).await.pop().unwrap()
}

async fn until_marked_process(mark: &str) {
    let deadline = soon();
    while bearing(mark).is_empty() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "nothing runs with `{mark}`");
        pause().await;
    }
}

/// All that was recorded was told, each once and in order.
async fn assert_all_events_delivered(session: &Session) {
    let mut listener = session.subscribe(0).await.unwrap();
    let end = session.snapshot().await.unwrap().events;
    let mut received = Vec::new();
    while listener.next_seq() < end {
        if let Update::Recorded(event) = listener.next().await.unwrap() {
            received.push(event.id);
        }
    }
    let count = received.len();
    let distinct: HashSet<_> = received.iter().collect();
    assert!(count > 0 && distinct.len() == count, "{received:?}");
}

#[tokio::test]
async fn an_engine_that_is_killed_under_sessions_is_used_again() {
    let Some(engine_fixture) = EngineFixture::new().await else { return };
    let sent = SentRequests::default();
    let runtime = start(&engine_fixture.fixture, &sent).await;
    let [busy, idle] = [runtime.open(spec()).await.unwrap(), runtime.open(spec()).await.unwrap()];
    let other_session = runtime.open(in_a_jail()).await.unwrap();
    let mark = format!("mark-of-{}", busy.id());
    for round in 0..2 {
        let output = run(&idle, &format!("echo {round} >> note; cat note")).await;
        assert!(output.ends_with(&format!("{round}\n")), "{output}");
        // A call that takes for ever, and one that follows in the same turn; one in a jail that waits for its file.
        let long = format!("echo {round} >> note; exec -a {mark} sleep 1000");
        let mut lost = send(&busy, &[&long, "cat note"]).await;
        let go = format!("go-{round}");
        let mut going =
            send(&other_session, &[&format!("until [ -e {go} ]; do sleep 0.02; done; echo went")]).await;
        until_marked_process(&mark).await;
        let before = engine_fixture.ids().await;
        engine_fixture.engine.end(Signal::KILL).await;

        // Without it: what runs continues, a container that is not there yet is not to be had, jails are.
        let note: String = (0..=round).map(|round| format!("{round}\n")).collect();
        assert_eq!(run(&idle, "cat note").await, note);
        let late = runtime.open(spec()).await.unwrap();
        let output = run(&late, "echo here").await;
        assert!(output.contains("the sandbox could not be started") && output.contains("engine"), "{output}");
        std::fs::write(engine_fixture.workspace(&other_session).join(go), "").unwrap();
        assert_eq!(results(&mut going).await, ["went\n"]);
        let other = runtime.open(in_a_jail()).await.unwrap();
        assert_eq!(run(&other, "echo here").await, "here\n");

        engine_fixture.engine.start().await;
        let result = results(&mut lost).await;
        assert_eq!(result.len(), 2, "{result:?}");
        assert!(result[0].contains("the sandbox was lost"), "{result:?}");
        assert!(result[1].contains("This ran in a new sandbox") && result[1].ends_with(&note), "{result:?}");
        // The loss between calls.
        engine_fixture.until_gone(&before).await;
        let second = run(&idle, "cat note").await;
        assert!(second.contains("This ran in a new sandbox") && second.ends_with(&note), "{second}");
        assert_eq!(run(&late, "echo here").await, "here\n");
        engine_fixture.until_there_are(3).await;
        for session in [&late, &other] {
            runtime.delete(session.tenant(), session.id()).await.unwrap();
        }
        engine_fixture.until_there_are(2).await;
        for session in [&busy, &idle, &other_session] {
            assert_all_events_delivered(session).await;
        }
    }
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
    engine_fixture.engine.until_nothing_is_left().await;
    assert_eq!((bearing(&mark), engine_fixture.engine.pids(Part::Guest)), (Vec::new(), Vec::new()));
}

/// The part: a host with a call under way in a container, and one between two calls, which lives until it is killed.
#[tokio::test]
async fn part_a_process_with_an_engine_that_dies() {
    let Some(parameters) = test_parameters() else { return };
    let [dir, image, engine] = *parameters.split(' ').collect::<Vec<_>>() else { panic!("{parameters}") };
    let fixture = Fixture::existing_with(Path::new(dir), ExecutorKind::Docker, of(image, engine));
    let runtime = start(&fixture, &SentRequests::default()).await;
    let [busy, idle] = [runtime.open(spec()).await.unwrap(), runtime.open(spec()).await.unwrap()];
    assert_eq!(run(&idle, "echo kept > note; cat note").await, "kept\n");
    let mark = format!("mark-of-{}", busy.id());
    let _turn = send(&busy, &[&format!("echo kept > note; exec -a {mark} sleep 1000")]).await;
    until_marked_process(&mark).await;
    println!("\nBUSY {}\nIDLE {}\nREADY", busy.id(), idle.id());
    std::future::pending::<()>().await;
}

/// Whether the engine is there again before the next host is, or after.
async fn both_are_killed(is_engine_first: bool) {
    let Some(engine_fixture) = EngineFixture::new().await else { return };
    let parameters = format!(
        "{} {} {}",
        engine_fixture.fixture.dir().display(),
        engine_fixture.image.name(),
        engine_fixture.engine.address()
    );
    let mut part = rerun(&[], "runtime_engines::part_a_process_with_an_engine_that_dies", &parameters);
    let mut part = KillOnDrop(part.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let lines = BufReader::new(part.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: Vec<String> = lines.take_while(|line| line != "READY").collect();
    let named = |name| lines.iter().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap();
    let (busy, idle) = (named("BUSY"), named("IDLE"));
    engine_fixture.until_there_are(2).await;
    engine_fixture.engine.end(Signal::KILL).await;
    drop(part);

    let sent = SentRequests::default();
    let mut runtime = None;
    if is_engine_first {
        engine_fixture.engine.start().await;
    } else {
        runtime = Some(start(&engine_fixture.fixture, &sent).await);
        engine_fixture.engine.start().await;
    }
    let runtime = match runtime {
        Some(runtime) => runtime,
        None => start(&engine_fixture.fixture, &sent).await,
    };
    let acme = tenant("acme");
    for id in [busy, idle] {
        let session = runtime.session(&acme, id).await.unwrap();
        let output = run(&session, "cat note").await;
        assert!(output.contains("This ran in a new sandbox") && output.ends_with("kept\n"), "{output}");
    }
    // The interrupted call is reported once, as unknown.
    let events = runtime.events(&acme, busy, 0).await.unwrap();
    let unknown = events.iter().filter(|event| {
        matches!(event.kind, SessionEventKind::AgentToolResult { outcome: CallOutcome::Unknown, .. })
    });
    assert_eq!(unknown.count(), 1);
    assert_eq!(bearing(&format!("mark-of-{busy}")), []);
    sent.check();
    engine_fixture.until_there_are(2).await;
    runtime.shutdown(soon()).await.unwrap();
    engine_fixture.engine.until_nothing_is_left().await;
    assert_eq!(engine_fixture.engine.pids(Part::Guest), [0; 0]);
}

#[tokio::test]
async fn a_process_and_its_engine_are_killed_and_the_engine_comes_back_first() {
    both_are_killed(true).await;
}

#[tokio::test]
async fn a_process_and_its_engine_are_killed_and_the_host_comes_back_first() {
    both_are_killed(false).await;
}
