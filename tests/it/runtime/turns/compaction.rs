//! Compaction of long sessions through the runtime: with a kill during it, revival, and billing.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use conjure::config::{CompactionSettings, ExecutorKind};
use conjure::conversation::CompactionPolicy;
use conjure::session::SkillDelivery;
use conjure::tenant::{Period, Quota};
use conjure::{
    Block, Model, Request, Response, Runtime, RuntimeError, Session, SessionEventKind, Settings, StopReason,
    Usage, model_fn,
};
use test_support::KillOnDrop;

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};

/// The environment variable with the parameters of the part.
const HOST: &str = "CONJURE_TEST_HOST_THAT_COMPACTS";

const POLICY: CompactionPolicy = CompactionPolicy::with_threshold(3_000).with_kept_messages(2);

fn is_summary(request: &Request) -> bool {
    request.messages.last().unwrap().text().contains("Do not go on with the task now")
}

/// Repeats what it is told, and writes summaries; it counts bytes for tokens.
fn answer(request: &Request) -> Response {
    let blocks = request.messages.iter().flat_map(|message| &message.content);
    let input_tokens = blocks.map(|block| block.json().len() as u64).sum();
    let last = request.messages.last().unwrap().text();
    let text = if is_summary(request) { "In short.".to_owned() } else { format!("heard: {last}") };
    Response {
        model: Some("echo".to_owned()),
        usage: Usage { input_tokens, output_tokens: 2, ..Usage::default() },
        ..Response::new(vec![Block::text(text)], StopReason::EndTurn)
    }
}

fn model(requests: &Arc<Mutex<Vec<Request>>>) -> impl Model + 'static {
    let requests = Arc::clone(requests);
    model_fn(move |request: Request| {
        requests.lock().unwrap().push(request.clone());
        async move { Ok(answer(&request)) }
    })
}

async fn start(fixture: &Fixture, requests: &Arc<Mutex<Vec<Request>>>) -> Runtime {
    let options =
        fixture.options().model("counting", model(requests)).default_model("counting").compaction(POLICY);
    Runtime::spawn(options).await.unwrap()
}

fn long(number: usize) -> String {
    format!("{number} {}", "x".repeat(400))
}

/// The outcome of each compaction, from the session's events.
async fn recorded_events(runtime: &Runtime, session: &Session) -> Vec<&'static str> {
    let events = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
    let what = |kind: &SessionEventKind| match kind {
        SessionEventKind::CompactionStart { .. } => Some("begun"),
        SessionEventKind::SessionCompacted { .. } => Some("compacted"),
        SessionEventKind::CompactionEnd { is_error: true, .. } => Some("ended"),
        _ => None,
    };
    events.iter().filter_map(|event| what(&event.kind)).collect()
}

#[tokio::test]
async fn a_long_session_is_compacted_and_keeps_its_events() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let recorded = Arc::default();
    let runtime = start(&fixture, &recorded).await;
    let session = runtime.open(spec()).await.unwrap();
    for number in 0..12 {
        assert_eq!(ask(&session, &long(number)).await, format!("heard: {}", long(number)));
    }
    let done = recorded_events(&runtime, &session).await;
    assert!(done.len() >= 4 && done.chunks(2).all(|pair| pair == ["begun", "compacted"]), "{done:?}");
    // The tenant has paid for the summaries, too.
    let requests = recorded.lock().unwrap().clone();
    let used: u64 = requests.iter().map(|request| answer(request).usage.total()).sum();
    assert_eq!(session.snapshot().await.unwrap().usage.total(), used);
    let spent = runtime.tenant(&tenant("acme")).await.unwrap().usage.spent;
    let total = spent.iter().find(|spent| spent.quota == Quota::Tokens(Period::Total)).unwrap();
    assert_eq!(total.used, used);
    assert!(requests.iter().filter(|request| is_summary(request)).count() == done.len() / 2);
    // Everything that was said is in the record.
    let events = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
    let all = events.iter().map(|event| event.to_line()).collect::<Vec<_>>().join("\n");
    for number in 0..12 {
        assert!(all.contains(&format!("heard: {}", long(number))), "{number}");
    }
    runtime.shutdown(soon()).await.unwrap();

    // Another process knows the same history: a summary, and what came after it.
    recorded.lock().unwrap().clear();
    let runtime = start(&fixture, &recorded).await;
    let revived = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    ask(&revived, "and now?").await;
    let request = recorded.lock().unwrap().iter().rfind(|request| !is_summary(request)).unwrap().clone();
    assert!(request.messages[0].text().ends_with("In short."), "{}", request.messages[0].text());
    assert!(request.messages.len() < 12 && request.messages.last().unwrap().text() == "and now?");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn instructions_lost_in_compaction_are_delivered_again_once() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let recorded: Arc<Mutex<Vec<Request>>> = Arc::default();
    let received = Arc::clone(&recorded);
    // Its first words load the skill.
    let loads = model_fn(move |request: Request| {
        received.lock().unwrap().push(request.clone());
        async move {
            let mut answer = answer(&request);
            if request.messages.len() == 1 {
                let call = r#"{"type":"tool_use","id":"toolu_1","name":"skills_load","input":{"names":["greeting"]}}"#;
                answer.content = vec![Block::from_json(call).unwrap()];
                answer.stop_reason = StopReason::ToolUse;
            }
            Ok(answer)
        }
    });
    let options = fixture.options().model("loading", loads).default_model("loading").compaction(POLICY);
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().skills(["greeting"]).delivery(SkillDelivery::Result)).await.unwrap();
    for number in 0..16 {
        ask(&session, &long(number)).await;
    }
    assert!(
        recorded_events(&runtime, &session).await.iter().filter(|what| **what == "compacted").count() >= 2
    );
    assert_eq!(session.snapshot().await.unwrap().active_skills[0].name, "greeting");
    // Once in each request behind the load, wherever it stands.
    let requests = recorded.lock().unwrap().clone();
    let mut summarised = 0;
    for request in requests[1..].iter().filter(|request| !is_summary(request)) {
        let blocks = request.messages.iter().flat_map(|message| &message.content);
        let text: String = blocks.map(|block| block.json()).collect();
        assert_eq!(text.matches("Run `scripts/run.sh`.").count(), 1, "{text}");
        assert!(!request.instructions.concat().contains("Run `scripts/run.sh`."));
        summarised += usize::from(request.messages[0].text().contains("In short."));
    }
    assert!(summarised > 2);
    runtime.shutdown(soon()).await.unwrap();
}

/// The part: a host whose model never ends its first summary. It says so, and lives until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn part_a_process_that_compacts() {
    #[expect(clippy::disallowed_methods, reason = "the variable has the parameters of the part")]
    let Ok(dir) = std::env::var(HOST) else { return };
    let fixture = Fixture::existing(Path::new(&dir), ExecutorKind::Jail);
    let hangs = model_fn(|request: Request| async move {
        if is_summary(&request) {
            println!("\nREADY");
            std::future::pending::<()>().await;
        }
        Ok(answer(&request))
    });
    let options = fixture.options().model("counting", hangs).default_model("counting").compaction(POLICY);
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    for number in 0..12 {
        ask(&session, &long(number)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[expect(clippy::disallowed_methods, reason = "the test needs another process")]
async fn a_session_killed_during_compaction_resumes() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["runtime::turns::compaction::part_a_process_that_compacts", "--exact", "--nocapture"]);
    command.env(HOST, fixture.dir());
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let stdout = BufReader::new(child.0.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    drop(child);

    let recorded = Arc::default();
    let runtime = start(&fixture, &recorded).await;
    let id = runtime.session_ids(&tenant("acme")).await.unwrap()[0];
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    // The interrupted turn resumes by itself, and then this one runs.
    assert_eq!(ask(&session, "still there?").await, "heard: still there?");
    assert_eq!(recorded_events(&runtime, &session).await, ["begun", "ended", "begun", "compacted"]);
    let requests = recorded.lock().unwrap().clone();
    assert!(is_summary(&requests[0]) && !is_summary(&requests[1]));
    assert!(requests[1].messages[0].text().ends_with("In short."));
    let events = runtime.events(&tenant("acme"), id, 0).await.unwrap();
    let all = events.iter().map(|event| event.to_line()).collect::<Vec<_>>().join("\n");
    assert_eq!(
        all.matches(r#""type":"user.message""#).count(),
        all.matches(r#""type":"agent.message""#).count()
    );
    runtime.shutdown(soon()).await.unwrap();
}

/// The service drops the compacted history, and with it instructions in results.
#[tokio::test]
async fn instructions_are_not_delivered_in_results_where_the_service_compacts() {
    let compaction = CompactionSettings { service_threshold: Some(100_000), ..CompactionSettings::default() };
    let settings = Settings { compaction: Some(compaction), ..Settings::default() };
    let fixture = Fixture::with(ExecutorKind::Jail, settings);
    let runtime = fixture.start().await;
    let error = runtime.open(spec().delivery(SkillDelivery::Result)).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Delivery) && error.hint().is_some(), "{error}");
    assert!(runtime.session_ids(&tenant("acme")).await.unwrap().is_empty());
    runtime.open(spec()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}
