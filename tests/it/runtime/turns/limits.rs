//! Limits that stop a turn, and fork storms in its sandbox, through the runtime, in real jails and containers: each is
//! reported with its cause, and the session continues.

use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::{Limit, TurnStop};
use conjure::model::{ContainerId, ModelEvent, ModelStream, Role};
use conjure::tool::ToolCall;
use conjure::{
    Block, Limits, Model, Request, Response, Runtime, RuntimeOptions, Session, Settings, StopReason,
    approver_fn,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::runtime::fixture::{Fixture, follow, soon, spec};
use crate::runtime::programs::{SentRequests, bash, forbidden, review};

/// A model whose answers cost money.
struct PricedModel<M>(M);

impl<M: Model> Model for PricedModel<M> {
    fn stream(&self, request: Request) -> ModelStream {
        let priced = |event| match event {
            Ok(ModelEvent::Finished(mut answer)) => {
                answer.usage.cost_micros = 1_000;
                Ok(ModelEvent::Finished(answer))
            }
            other => other,
        };
        self.0.stream(request).map(priced).boxed()
    }
}

async fn start(fixture: &Fixture, sent: &SentRequests) -> Runtime {
    let approver = approver_fn(|call: ToolCall| async move { review(&call) });
    let options =
        RuntimeOptions::from(fixture.config()).model("dear", PricedModel(sent.model())).approver(approver);
    Runtime::spawn(options).await.unwrap()
}

/// So many answers, each with these calls.
async fn stopped_by(
    session: &Session,
    limits: Limits,
    answers: impl Iterator<Item = Vec<Value>>,
) -> TurnStop {
    let program = Value::from(answers.map(Value::from).collect::<Vec<_>>());
    follow(&mut session.send_with_limits(program.to_string(), Some(limits)).await.unwrap()).await.0
}

async fn every_turn_limit_stops_its_turn(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let none = Limits::default;
    let line = |number: usize| bash(&format!("echo {number} >> effects"));
    let cases = [
        (Limit::ModelCalls, Limits { model_calls: 3, ..none() }, false, 3),
        (Limit::ToolCalls, Limits { tool_calls: 4, ..none() }, false, 4),
        // Of 110 tokens each.
        (Limit::Tokens, Limits { tokens: Some(300), ..none() }, false, 3),
        (Limit::Cost, Limits { cost_micros: Some(2_500), ..none() }, false, 3),
        (Limit::DeniedCalls, Limits { denied_calls: 2, ..none() }, true, 0),
    ];
    let mut done = 0;
    for (limit, limits, is_denied, max) in cases {
        let answers = (0..20).map(|number| vec![if is_denied { forbidden() } else { line(number) }]);
        assert_eq!(stopped_by(&session, limits, answers).await, TurnStop::Limit(limit));
        let (_, text) = follow(&mut session.send("hello").await.unwrap()).await;
        assert_eq!(text, "heard: hello", "after {limit}");
        let count = effects(&fixture, &session);
        assert!(count <= done + max && (max == 0 || count > done), "{limit}: {count} after {done}");
        done = count;
    }
    let circle = (0..20).map(|_| vec![bash("echo circle >> effects")]);
    let limits = Limits { identical_calls: 3, ..none() };
    assert_eq!(stopped_by(&session, limits, circle).await, TurnStop::Limit(Limit::IdenticalCalls));
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

/// On `pause N` it pauses N times, each time in the middle of a server tool, before it continues.
struct PausingModel<M>(M);

/// The content before a pause: each is unique, in an unusual notation.
fn blocks_before(pause: usize) -> [Block; 3] {
    let call = format!(
        r#"{{"type":"server_tool_use",  "id":"srvtoolu_{pause}","name":"code","input":{{"n": {pause}.50}}}}"#
    );
    let result = format!(
        r#"{{ "type":"code_tool_result","tool_use_id":"srvtoolu_{pause}","content":{{"b":1,"a":[]}} }}"#
    );
    [call, result, format!(r#"{{"text":"part {pause} of \u0041","type":"text"}}"#)]
        .map(|block| Block::from_json(block).unwrap())
}

/// The content up to this many pauses.
fn blocks_up_to(pauses: usize) -> Vec<Block> {
    (0..pauses).flat_map(blocks_before).collect()
}

impl<M: Model> Model for PausingModel<M> {
    fn stream(&self, request: Request) -> ModelStream {
        let (last, before) = request.messages.split_last().unwrap();
        let (text, paused) = match last.role {
            Role::User => (last.text(), 0),
            Role::Assistant => (before.last().unwrap().text(), last.content.len() / 3),
        };
        let wanted = text.strip_prefix("pause ").map_or(0, |count| count.parse().unwrap());
        let pausing = move |event| match event {
            Ok(ModelEvent::Finished(answer)) if paused < wanted => {
                Ok(ModelEvent::Finished(Box::new(Response {
                    content: blocks_before(paused).to_vec(),
                    stop_reason: StopReason::PauseTurn,
                    container: Some(ContainerId::new(format!("container_{paused}"))),
                    ..*answer
                })))
            }
            other => other,
        };
        self.0.stream(request).map(pausing).boxed()
    }
}

/// A paused answer goes back as it is and nothing with it, as often as the limits allow.
#[cfg(not(engines))]
#[tokio::test]
async fn pauses_are_resumed_unchanged_up_to_the_limit() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let sent = SentRequests::default();
    let start = async || {
        let options = RuntimeOptions::from(fixture.config()).model("pausing", PausingModel(sent.model()));
        Runtime::spawn(options).await.unwrap()
    };
    let runtime = start().await;
    let session = runtime.open(spec()).await.unwrap();
    let three = Limits { pauses: 3, ..Limits::default() };
    let mut before = 0;
    for (limits, pauses, max) in [(None, 10, 10), (None, 40, 10), (Some(&three), 3, 3), (Some(&three), 4, 3)]
    {
        let message = format!("pause {pauses}");
        let mut turn = session.send_with_limits(message.as_str(), limits.cloned()).await.unwrap();
        let (stop, text) = follow(&mut turn).await;
        // At once, and not only when the session rests.
        let last = session.snapshot().await.unwrap().last_turn.unwrap();
        let is_too_much = pauses > max;
        if is_too_much {
            assert_eq!(stop, TurnStop::Limit(Limit::Pauses));
        } else {
            assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
            assert_eq!(text, format!("heard: {message}"));
        }
        let attempts = max + usize::from(is_too_much);
        assert_eq!((last.stop, last.pauses, last.limits.pauses), (stop, attempts as u32, max as u32));
        assert_eq!(last.model_calls as usize, max + 1);
        let requests = sent.requests().split_off(before);
        assert_eq!(requests.len(), max + 1);
        for (resumed, request) in requests.iter().enumerate().skip(1) {
            let (last, earlier) = request.messages.split_last().unwrap();
            assert_eq!((last.role, &last.content), (Role::Assistant, &blocks_up_to(resumed)));
            let raw = |blocks: &[Block]| serde_json::to_string(blocks).unwrap();
            assert_eq!(raw(&last.content), raw(&blocks_up_to(resumed)), "byte for byte");
            assert_eq!((earlier, &request.tools), (&*requests[0].messages, &requests[0].tools));
            let container = ContainerId::new(format!("container_{}", resumed - 1));
            assert_eq!(request.container.as_ref(), Some(&container), "it is kept");
        }
        let (_, answer) = follow(&mut session.send("hello").await.unwrap()).await;
        assert_eq!(answer, "heard: hello");
        before = sent.requests().len();
    }
    // Later callers get the same error.
    let mut turn = session.send_with_limits("pause 4", Some(three)).await.unwrap();
    follow(&mut turn).await;
    let last = session.snapshot().await.unwrap().last_turn;
    runtime.shutdown(soon()).await.unwrap();
    let runtime = start().await;
    let revived = runtime.session(session.tenant(), session.id()).await.unwrap();
    assert_eq!(revived.snapshot().await.unwrap().last_turn, last);
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

fn effects(fixture: &Fixture, session: &Session) -> usize {
    let workspace =
        fixture.data().join(format!("tenants/acme/workspaces/{}/workspace", session.id().stored_name()));
    std::fs::read_to_string(workspace.join("effects")).unwrap_or_default().lines().count()
}

/// A call may not take long: a shell that cannot fork tries for long. All others take far less, also behind the storm.
fn fixture_with_short_timeouts(kind: ExecutorKind, settings: Settings) -> Fixture {
    Fixture::with(kind, Settings { tool_timeout: Some(Duration::from_secs(10)), ..settings })
}

async fn a_storm_of_forks_is_reported_and_the_next_call_works(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let other_session = runtime.open(spec()).await.unwrap();
    for _ in 0..2 {
        // It ends with the call: who cannot fork has lost.
        let storm =
            bash("storm() { storm | storm & }; for i in $(seq 2000); do sleep 1000 & done; echo over");
        let next = bash("echo still here");
        let (stop, _) = follow(&mut session.send(json!([[storm], [next]]).to_string()).await.unwrap()).await;
        assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
        let last = sent.last();
        let results_text: Vec<String> = last.messages.iter().map(|message| results(message)).collect();
        let storm = &results_text[results_text.len() - 3];
        assert!(storm.contains("process") || storm.contains("fork"), "{storm}");
        assert!(results_text.last().unwrap().contains("still here"), "{results_text:?}");
        let (_, answer) = follow(&mut other_session.send("hello").await.unwrap()).await;
        assert_eq!(answer, "heard: hello");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// The text of the results in a message.
fn results(message: &conjure::Message) -> String {
    let texts = message.content.iter().filter_map(|block| match block.kind() {
        conjure::model::BlockKind::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(not(engines))]
#[tokio::test]
async fn every_turn_limit_stops_its_turn_in_a_jail() {
    every_turn_limit_stops_its_turn(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_fork_storm_in_a_jail_is_reported() {
    if !rustix::process::geteuid().is_root() {
        test_support::skip(
            "only root can have control groups for a jail on every machine",
            "run the tests as root",
        );
        return;
    }
    let fixture = fixture_with_short_timeouts(ExecutorKind::Jail, Settings::default());
    a_storm_of_forks_is_reported_and_the_next_call_works(fixture).await;
}

#[cfg(engines)]
mod containers {
    use super::*;
    use crate::image::test_image;
    use crate::runtime::fixture::of_containers;

    #[tokio::test]
    async fn every_turn_limit_stops_its_turn() {
        let Some(image) = test_image() else { return };
        super::every_turn_limit_stops_its_turn(Fixture::in_containers(&image)).await;
    }

    #[tokio::test]
    async fn a_fork_storm_is_reported() {
        let Some(image) = test_image() else { return };
        let fixture = fixture_with_short_timeouts(ExecutorKind::Docker, of_containers(&image));
        a_storm_of_forks_is_reported_and_the_next_call_works(fixture).await;
    }
}
