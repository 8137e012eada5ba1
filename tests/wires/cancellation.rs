//! Turns that are interrupted anywhere, turns that are resumed, and ids that come twice.

use conjure::conversation::TurnStop;
use conjure::{Block, Runtime, SessionError, TurnEvent, TurnHandle};
use serde_json::json;

use crate::support::host::{FORBIDDEN, Host, ask, soon, spec, tenant};
use crate::support::sent_request::SentItem;
use crate::support::test_reply::{TestReply, call, note, thinking};
use crate::support::test_wire::{TestService, TestWire, on_every_wire};

on_every_wire!(
    a_turn_that_is_interrupted_anywhere_leaves_a_valid_history,
    a_turn_whose_session_is_killed_anywhere_repeats_no_effect,
    a_turn_whose_process_stops_anywhere_leaves_a_valid_history,
    an_id_that_comes_twice_has_two_results,
);

/// A turn of three model calls, with calls of several tools.
fn work() -> [TestReply; 3] {
    let text = |text: &str| json!({"text": text});
    [
        TestReply::blocks(vec![
            thinking("Let me see."),
            Block::text("I begin."),
            note("call_1", "a"),
            call("call_2", "slow", &text("b")),
            note("call_3", "c"),
        ]),
        TestReply::blocks(vec![
            Block::text("I go on."),
            note("call_4", "d"),
            call("call_5", FORBIDDEN, &text("never")),
            call("call_6", "fail", &text("e")),
        ]),
        TestReply::blocks(vec![thinking("So."), Block::text("Done.")]),
    ]
}

/// Follows a turn for so many of its events; why it ended, if it did.
async fn follow_for(turn: &mut TurnHandle, events: usize) -> Option<TurnStop> {
    for _ in 0..events {
        if let TurnEvent::Ended { stop, .. } = turn.next().await.unwrap().unwrap() {
            return Some(stop);
        }
    }
    None
}

/// Follows a turn to its end, or until nobody drives it on.
async fn end_of(turn: &mut TurnHandle) -> Result<TurnStop, SessionError> {
    loop {
        if let TurnEvent::Ended { stop, .. } = turn.next().await.unwrap()? {
            return Ok(stop);
        }
    }
}

/// A service that plays the work to each session, and has a few words for whoever goes on behind it.
async fn working_service(wire: TestWire) -> TestService {
    let behind = (0..3).map(|_| TestReply::text("Hello."));
    TestService::start_by_position(wire, work().into_iter().chain(behind)).await
}

/// There were enough places to stop at.
fn check_places(places: usize) {
    assert!(places > 20, "only {places} places to stop at: the test has lost its grip");
}

/// Each place of interruption has its own session.
async fn a_turn_that_is_interrupted_anywhere_leaves_a_valid_history(wire: TestWire) {
    let service = working_service(wire).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    for place in 0.. {
        let session = runtime.open(spec()).await.unwrap();
        let mut turn = session.send(format!("Work {place}")).await.unwrap();
        let ended = follow_for(&mut turn, place).await;
        session.interrupt().await.unwrap();
        let is_over = ended.is_some();
        let stop = match ended {
            Some(stop) => stop,
            None => end_of(&mut turn).await.unwrap(),
        };
        assert!(matches!(stop, TurnStop::Interrupted | TurnStop::Answered(_)), "{place}: {stop}");
        ask(&session, &format!("Go on {place}")).await;
        if is_over {
            assert!(matches!(stop, TurnStop::Answered(_)), "{place}: {stop}");
            check_places(place);
            break;
        }
    }
    assert!(!host.tools.lines().contains(&"never".to_owned()));
    service.check();
}

/// An effect whose outcome is unknown is not repeated. The model is told so.
async fn a_turn_whose_session_is_killed_anywhere_repeats_no_effect(wire: TestWire) {
    let service = working_service(wire).await;
    let mut unknown = 0;
    for place in (0..).step_by(3) {
        let host = Host::new();
        let runtime = host.start(&service).await;
        let session = runtime.open(spec()).await.unwrap();
        let mut turn = session.send(format!("Work {place}")).await.unwrap();
        let ended = follow_for(&mut turn, place).await;
        session.kill();
        let is_over = ended.is_some();
        let stop = match ended {
            Some(stop) => stop,
            None => end_of(&mut turn).await.unwrap(),
        };
        assert!(matches!(stop, TurnStop::Answered(_)), "{place}: {stop}");
        let mut effects = host.tools.lines();
        let count = effects.len();
        effects.sort_unstable();
        effects.dedup();
        assert_eq!(effects.len(), count, "{place}: an effect was repeated: {effects:?}");
        let results = service.last_request().results();
        unknown += results.iter().filter(|(text, _)| text.contains("outcome unknown")).count();
        ask(&session, &format!("Go on {place}")).await;
        runtime.shutdown(soon()).await.unwrap();
        if is_over {
            check_places(place);
            break;
        }
    }
    assert!(unknown > 0, "no call was under way when its session was killed: the test has lost its grip");
    service.check();
}

/// The host shuts down, and starts again.
async fn a_turn_whose_process_stops_anywhere_leaves_a_valid_history(wire: TestWire) {
    let service = working_service(wire).await;
    let host = Host::new();
    let start = async || Runtime::spawn(host.options([("model", &service)])).await.unwrap();
    let mut runtime = start().await;
    for place in (0..).step_by(4) {
        let session = runtime.open(spec()).await.unwrap();
        let mut turn = session.send(format!("Work {place}")).await.unwrap();
        let is_over = follow_for(&mut turn, place).await.is_some();
        runtime.shutdown(soon()).await.unwrap();
        runtime = start().await;
        let session = runtime.session(&tenant("acme"), session.id()).await.unwrap();
        ask(&session, &format!("Go on {place}")).await;
        if is_over {
            check_places(place);
            break;
        }
    }
    runtime.shutdown(soon()).await.unwrap();
    service.check();
}

/// A service that gives the same id to calls of two answers. Gemini's gives none, so its calls differ by their place.
async fn an_id_that_comes_twice_has_two_results(wire: TestWire) {
    let replies = [
        TestReply::note("call_1", "a"),
        TestReply::note("call_1", "b"),
        TestReply::blocks(vec![note("call_1", "c"), note("call_2", "d")]),
        TestReply::text("Done."),
    ];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "Go").await, "Done.");
    let last = service.last_request();
    let results: Vec<String> = last.results().into_iter().map(|(text, _)| text).collect();
    assert_eq!(results, ["noted a", "noted b", "noted c", "noted d"]);
    let calls: Vec<String> = last
        .items()
        .into_iter()
        .filter_map(|item| match item {
            SentItem::Call { input, .. } => Some(input["text"].as_str().unwrap().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(calls, ["a", "b", "c", "d"]);
    service.check();
}
