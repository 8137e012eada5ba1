//! Turns through the runtime, in real jails and containers: failing parallel calls, slow and dropped readers, queued and
//! steering messages, and time limits.

use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::{Limit, TurnStop};
use conjure::model::BlockKind;
use conjure::tool::{CallConcurrency, CallTraits};
use conjure::{
    Limits, Message, Runtime, RuntimeOptions, Settings, StopReason, ToolDefinition, ToolOutput, TurnEvent,
    Update, tool_fn,
};
use serde_json::json;

use crate::processes::bearing;
use crate::runtime::fixture::{Fixture, follow, soon, spec};
use crate::runtime::programs::{SentRequests, bash};

/// A host of which one call takes too long, and all others far less than they may.
fn fixture_with_short_timeouts(kind: ExecutorKind, settings: Settings) -> Fixture {
    Fixture::with(kind, Settings { tool_timeout: Some(Duration::from_secs(10)), ..settings })
}

async fn start(fixture: &Fixture, sent: &SentRequests) -> Runtime {
    let definition = ToolDefinition {
        name: "fragile".to_owned(),
        description: "breaks".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: false };
    let fragile = tool_fn(definition, traits, |_, _| breaks());
    let options = RuntimeOptions::from(fixture.config())
        .model("program", sent.model())
        .tool(fragile)
        .sessions(|sessions| sessions.ring = (8, 1 << 20));
    Runtime::spawn(options).await.unwrap()
}

async fn breaks() -> ToolOutput {
    panic!("the tool panics")
}

async fn a_failing_call_does_not_affect_its_siblings(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let mark = format!("mark-of-{}", session.id());
    // Its sandbox is there: the time that this takes is not that of the calls.
    let executor = session.executor().await.unwrap();
    let noop_command = conjure::sandbox::Command::new(["true"]);
    executor.run(noop_command, conjure::sandbox::CallOptions::until(soon())).await.unwrap();
    let calls = json!([[
        bash("echo first"),
        bash("echo second; exit 3"),
        bash(&format!("echo third; exec -a {mark} sleep 1000")),
        ["fragile", {}],
        ["no_such_tool", {}],
        bash("sleep 0.1; echo last"),
    ]]);
    let (stop, answer) = follow(&mut session.send(calls.to_string()).await.unwrap()).await;
    assert_eq!((stop, answer.as_str()), (TurnStop::Answered(StopReason::EndTurn), "done"));
    let request = sent.last();
    let results = request.messages.last().unwrap().content.iter().map(|block| match block.kind() {
        BlockKind::ToolResult { tool_use_id, text, is_error, .. } => {
            (tool_use_id.to_string(), text.clone(), *is_error)
        }
        other => panic!("{other:?}"),
    });
    let results: Vec<_> = results.collect();
    let expected = [
        ("first", false),
        ("second", true),
        ("third", true),
        ("crashed", true),
        ("no_such_tool", true),
        ("last", false),
    ];
    assert_eq!(results.len(), expected.len(), "{results:?}");
    for (index, ((id, text, is_error), (says, fails))) in results.iter().zip(expected).enumerate() {
        assert_eq!((id, *is_error), (&format!("call_0_0_{index}"), fails), "{text}");
        assert!(text.contains(says), "{index}: {text}");
    }
    assert!(results[2].1.contains("timed out"), "{}", results[2].1);
    assert_eq!(bearing(&mark), []);
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

async fn a_turn_ends_at_its_time_limit(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let mark = format!("mark-of-{}", session.id());
    // Its sandbox is there.
    follow(&mut session.send(json!([[bash("true")]]).to_string()).await.unwrap()).await;
    let limits = Limits { wall_clock: Some(Duration::from_millis(300)), ..Limits::default() };
    let sleeping = json!([[bash("echo begun >> effects"), bash(&format!("exec -a {mark} sleep 1000"))]]);
    let mut turn = session.send_with_limits(sleeping.to_string(), Some(limits)).await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Limit(Limit::WallClock));
    assert_eq!(bearing(&mark), []);
    let (_, text) = follow(&mut session.send("hello").await.unwrap()).await;
    assert_eq!(text, "heard: hello");
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

async fn queued_and_steering_messages_arrive_in_order(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    // It continues when the file is there.
    let wait = "until test -e go; do sleep 0.01; done";
    let mut turn = session.send(json!([[bash(wait), bash("echo beside")]]).to_string()).await.unwrap();
    let mut listener = session.subscribe(turn.accepted().seq()).await.unwrap();
    let mut queued = Vec::new();
    for number in 0..3 {
        queued.push(session.send(format!("queued {number}")).await.unwrap());
        session.steer(format!("by the way {number}")).await.unwrap();
    }
    assert_eq!(session.snapshot().await.unwrap().queue.len(), 3);
    let executor = session.executor().await.unwrap();
    let go = conjure::sandbox::Command::new(["touch", "go"]);
    executor.run(go, conjure::sandbox::CallOptions::until(soon())).await.unwrap();
    assert_eq!(follow(&mut turn).await.1, "done");
    let request = sent.requests().into_iter().rev().find(|request| request.turn == turn_of(&turn)).unwrap();
    let last = request.messages.last().unwrap();
    let results = last.content.iter().filter(|block| matches!(block.kind(), BlockKind::ToolResult { .. }));
    assert_eq!(results.count(), 2);
    let texts: Vec<String> = last.content.iter().skip(2).map(text_of).collect();
    assert_eq!(texts, ["by the way 0", "by the way 1", "by the way 2"]);
    for (number, turn) in queued.iter_mut().enumerate() {
        assert_eq!(follow(turn).await.1, format!("heard: queued {number}"));
    }
    // All of it was told, in order.
    let mut seq = 0;
    let end = session.snapshot().await.unwrap().events - 1;
    while seq < end {
        if let Update::Recorded(event) = listener.next().await.unwrap() {
            assert!(event.seq >= seq, "{} after {seq}", event.seq);
            seq = event.seq;
        }
    }
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

fn turn_of(turn: &conjure::TurnHandle) -> conjure::session::TurnId {
    match turn.accepted() {
        conjure::session::Accepted::Started { turn, .. } => turn,
        other => panic!("{other:?}"),
    }
}

fn text_of(block: &conjure::Block) -> String {
    Message::user(vec![block.clone()]).text()
}

async fn a_slow_reader_misses_nothing(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let mut slow = session.subscribe(0).await.unwrap();
    // A client that disconnects ends nothing.
    drop(session.send(json!([[bash("echo first >> note")]]).to_string()).await.unwrap());
    for number in 0..10 {
        let program = json!([[bash(&format!("echo {number} >> note"))]]);
        follow(&mut session.send(program.to_string()).await.unwrap()).await;
    }
    let last = session.snapshot().await.unwrap().events - 1;
    let all = runtime.events(session.tenant(), session.id(), 0).await.unwrap();
    let until = |from: u64| all.iter().map(|event| event.seq).filter(|seq| *seq >= from).collect::<Vec<_>>();
    let (seqs, lagged) = read_until(&mut slow, last).await;
    assert_eq!(seqs, until(0));
    assert!(lagged > 0, "the ring held everything, so the test proves nothing");
    // It continues from wherever it was.
    let (seqs, _) = read_until(&mut session.subscribe(last / 2).await.unwrap(), last).await;
    assert_eq!(seqs, until(last / 2));
    let mut turn = session.send(json!([[bash("head -n 1 note")]]).to_string()).await.unwrap();
    while let Some(event) = turn.next().await {
        if let TurnEvent::Ended { stop, .. } = event.unwrap() {
            assert_eq!(stop, TurnStop::Answered(StopReason::EndTurn));
        }
    }
    let note = session.list_files().await.unwrap();
    assert!(note.entries.iter().any(|entry| entry.size == 6 + 10 * 2), "{note:?}");
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

/// The places of the events up to the last one, each event once, and how often previews were missed.
async fn read_until(listening: &mut conjure::session::Subscription, last: u64) -> (Vec<u64>, usize) {
    let (mut events, mut lagged) = (Vec::<conjure::SessionEvent>::new(), 0);
    while listening.next_seq() <= last || events.last().is_none_or(|event| event.seq != last) {
        match listening.next().await.unwrap() {
            Update::Recorded(event) => events.push(event),
            Update::Lagged => lagged += 1,
            _ => {}
        }
    }
    let events = conjure::session::merge_events(events);
    (events.into_iter().map(|event| event.seq).collect(), lagged)
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_failing_call_in_a_jail_does_not_affect_parallel_calls() {
    a_failing_call_does_not_affect_its_siblings(fixture_with_short_timeouts(
        ExecutorKind::Jail,
        Settings::default(),
    ))
    .await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_turn_in_a_jail_ends_at_its_time_limit() {
    a_turn_ends_at_its_time_limit(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn queued_and_steering_messages_arrive_in_order_with_a_jail() {
    queued_and_steering_messages_arrive_in_order(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_slow_reader_misses_nothing_with_a_jail() {
    a_slow_reader_misses_nothing(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(engines)]
mod containers {
    use super::*;
    use crate::image::test_image;
    use crate::runtime::fixture::of_containers;

    #[tokio::test]
    async fn a_failing_call_does_not_affect_parallel_calls() {
        let Some(image) = test_image() else { return };
        a_failing_call_does_not_affect_its_siblings(fixture_with_short_timeouts(
            ExecutorKind::Docker,
            of_containers(&image),
        ))
        .await;
    }

    #[tokio::test]
    async fn a_turn_ends_at_its_time_limit() {
        let Some(image) = test_image() else { return };
        super::a_turn_ends_at_its_time_limit(Fixture::in_containers(&image)).await;
    }

    #[tokio::test]
    async fn queued_and_steering_messages_arrive_in_order() {
        let Some(image) = test_image() else { return };
        super::queued_and_steering_messages_arrive_in_order(Fixture::in_containers(&image)).await;
    }

    #[tokio::test]
    async fn a_slow_reader_misses_nothing() {
        let Some(image) = test_image() else { return };
        super::a_slow_reader_misses_nothing(Fixture::in_containers(&image)).await;
    }
}
