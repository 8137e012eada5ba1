//! Hosts that are killed in the first model call of a session: the declared side effects decide whether the call is repeated.
//! The
//! host is this program, run again.

use std::process::Stdio;

use conjure::config::ExecutorKind;
use conjure::conversation::EventKind;
use conjure::model::SideEffects;
use conjure::session::SessionStopReason;
use conjure::{Config, ProcessEnv, Runtime, RuntimeOptions, SessionEventKind, SessionSpec, Settings, Update};
use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};
use conjure_anthropic::hosted::code_execution_tool;
use conjure_anthropic::{Client, Messages, ModelOptions};
use conjure_conversation::Event;
use conjure_journal::{SessionKey, SqliteJournal, SqliteOptions, read_all};
use test_support::KillOnDrop;

use crate::rerun::{rerun, test_parameters};
use crate::runtime::fixture::{Fixture, ask, soon, tenant};

/// The configuration of the host's client. The session names no hosted skill.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
enum Kind {
    /// The request needs only a response.
    Plain,
    /// It runs code at the service with each call.
    Executing,
}

impl Kind {
    fn client(self, service: &str) -> Messages {
        let config = conjure_anthropic::Config::new("any-key".into()).with_base_url(service);
        let options = ModelOptions::new("m");
        let options = match self {
            Self::Plain => options,
            Self::Executing => {
                options.with_server_tool(code_execution_tool()).with_beta("code-execution-2025-08-25")
            }
        };
        Client::new(&config).unwrap().messages(options).unwrap()
    }
}

fn options(fixture: &Fixture, kind: Kind, service: &str) -> RuntimeOptions {
    let settings =
        Settings { data: Some(fixture.data()), executor: Some(ExecutorKind::Local), ..Settings::default() };
    let config = Config::from_layers(settings, &ProcessEnv::default(), None).unwrap();
    RuntimeOptions::from(config).model("own", kind.client(service))
}

/// The part: a host that waits for the answer of a first call until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_process_whose_first_call_is_not_answered() {
    let Some(parameters) = test_parameters() else { return };
    let (dir, kind, service): (std::path::PathBuf, Kind, String) = serde_json::from_str(&parameters).unwrap();
    let fixture = Fixture::existing(&dir, ExecutorKind::Local);
    let runtime = Runtime::spawn(options(&fixture, kind, &service)).await.unwrap();
    let session = runtime.open(SessionSpec::new(tenant("acme")).without_sandbox()).await.unwrap();
    session.send("make a table").await.unwrap().end().await.unwrap();
}

/// The first call of a host, received by the service and never answered, and the host killed.
async fn killed_in_its_first_call(fixture: &Fixture, kind: Kind, fake: &FakeMessages) {
    let part = "runtime::hosted::killed::part_a_process_whose_first_call_is_not_answered";
    let parameters = serde_json::to_string(&(fixture.dir(), kind, fake.base_url())).unwrap();
    let mut command = rerun(&[], part, &parameters);
    let process = KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    tokio::time::timeout(std::time::Duration::from_secs(60), fake.until_received(1)).await.unwrap();
    drop(process);
}

async fn service() -> FakeMessages {
    let run = || -> Reply { FakeToolRun::new("python make.py").saying("Done.").into() };
    let builder = FakeMessages::builder().hosting().faults([Reply::silence()]);
    builder.turns([run(), run()]).start().await.unwrap()
}

/// The recorded side effects of the session's calls.
async fn recorded(fixture: &Fixture, key: &SessionKey) -> Vec<Option<SideEffects>> {
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let rows = read_all(&journal, key, 0).await.unwrap();
    journal.close().await;
    let effects = |event: Event| match event.kind {
        EventKind::ModelCallStarted { effects, .. } => Some(effects),
        _ => None,
    };
    rows.iter().map(|row| serde_json::from_slice(&row.body).unwrap()).filter_map(effects).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_call_that_may_have_run_code_is_not_sent_again_by_itself() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    killed_in_its_first_call(&fixture, Kind::Executing, &fake).await;

    let runtime = Runtime::spawn(options(&fixture, Kind::Executing, &fake.base_url())).await.unwrap();
    let id = runtime.session_ids(&tenant("acme")).await.unwrap()[0];
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    assert_eq!(last_stop_reason(&session).await, SessionStopReason::OutcomeUnknown);
    assert_eq!(fake.received(), 1, "the request was not repeated");

    // The next message decides, and the model is told about the interruption.
    assert_eq!(ask(&session, "go on").await, "Done.");
    let sent = fake.requests().pop().unwrap();
    let sent: serde_json::Value = serde_json::from_slice(sent.body()).unwrap();
    let texts: Vec<&str> = sent["messages"][0]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"].as_str().unwrap())
        .collect();
    let ["make a table", told, "go on"] = texts[..] else { panic!("{texts:?}") };
    assert!(told.contains("what the service did for it is not known"), "{told}");
    runtime.shutdown(soon()).await.unwrap();
    let key = SessionKey::new(tenant("acme"), id);
    assert_eq!(recorded(&fixture, &key).await, [Some(SideEffects::Possible); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_call_that_only_answers_is_sent_again_by_itself() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = FakeMessages::builder().faults([Reply::silence()]);
    let answer = Reply::blocks(vec![conjure::Block::text("Done.")]);
    let fake = fake.turns([answer]).start().await.unwrap();
    killed_in_its_first_call(&fixture, Kind::Plain, &fake).await;

    let runtime = Runtime::spawn(options(&fixture, Kind::Plain, &fake.base_url())).await.unwrap();
    let id = runtime.session_ids(&tenant("acme")).await.unwrap()[0];
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    assert_eq!(last_stop_reason(&session).await, SessionStopReason::EndTurn);
    assert_eq!(fake.received(), 2);
    assert_eq!(session.snapshot().await.unwrap().last_text, "Done.");
    runtime.shutdown(soon()).await.unwrap();
    let key = SessionKey::new(tenant("acme"), id);
    assert_eq!(recorded(&fixture, &key).await, [Some(SideEffects::None); 2]);
}

/// How the turn ended that was under way.
async fn last_stop_reason(session: &conjure::Session) -> SessionStopReason {
    let mut listener = session.subscribe(0).await.unwrap();
    loop {
        if let Update::Recorded(event) = listener.next().await.unwrap()
            && let SessionEventKind::SessionStatusIdle { stop_reason, .. } = event.kind
        {
            return stop_reason;
        }
    }
}
