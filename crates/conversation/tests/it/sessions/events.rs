//! The events that hosts and people see.

use conjure_base::{SessionId, Timestamp};
use conjure_conversation::{
    Block, CommandKind, Decision, Event, EventKind, SessionEvent, StopReason, TurnOptions, TurnStop, Usage,
};
use serde_json::Value;

use crate::support::{FakeModel, Fixture, answer, calls, id, project, start, text, tool_use};

fn lines(events: &[Event]) -> Vec<String> {
    let session = SessionId::from_bits(7);
    project(session, 0, events).iter().map(SessionEvent::to_line).collect()
}

fn types(events: &[Event]) -> Vec<String> {
    lines(events)
        .iter()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            let stop =
                value["stop_reason"]["type"].as_str().map(|stop| format!(" {stop}")).unwrap_or_default();
            format!("{}{stop}", value["type"].as_str().unwrap())
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_session_events_in_known_nouns() {
    let thinking = Block::from_json(r#"{"type":"thinking","thinking":"hm","signature":"s"}"#).unwrap();
    let first = answer(vec![thinking, Block::text("I look."), tool_use("ask", "1")], StopReason::ToolUse);
    let fixture = Fixture::new(FakeModel::in_turn(vec![first, text("Done.")]));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    conversation.submit(CommandKind::Decide { call: id("1"), decision: Decision::Allow }).await.unwrap();
    fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert_eq!(
        types(&fixture.event_log.0.events()),
        [
            "user.message",
            "session.status_running",
            "span.model_request_start",
            "span.model_request_end",
            "agent.thinking",
            "agent.message",
            "agent.tool_use",
            "session.status_idle requires_action",
            "user.tool_confirmation",
            "session.status_running",
            "agent.tool_result",
            "span.model_request_start",
            "span.model_request_end",
            "agent.message",
            "session.status_idle end_turn",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_call_has_a_result_also_where_the_answer_was_cut() {
    let cut = answer(vec![tool_use("bash", "1")], StopReason::MaxTokens);
    let fixture = Fixture::new(FakeModel::in_turn(vec![cut]));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    let told = types(&fixture.event_log.0.events());
    assert_eq!(told[4..], ["agent.tool_use", "agent.tool_result", "session.status_idle cut"]);
}

#[test]
fn each_is_one_line_with_raw_content_and_all_common_fields() {
    let block = r#"{"type":"text","n":1.00,"text":"two\nlines"}"#;
    let kind = EventKind::Steered { input: vec![Block::from_json(block).unwrap()] };
    let line = &lines(&[Event { at: Timestamp::from_millis(1_795_248_000_123), kind }])[0];
    let expected = r#"{"schema":2,"id":"sevt_00000000000000000000000000000007_e0_0","seq":0,"#.to_owned()
        + r#""created_at":"2026-11-21T08:00:00.123Z","processed_at":"2026-11-21T08:00:00.123Z","#
        + r#""session_id":"sesn_00000000000000000000000000000007","type":"user.message","content":["#
        + block
        + "]}";
    assert_eq!(*line, expected);
}

#[test]
fn content_over_several_lines_becomes_one_line() {
    let spread = "{\"type\":\"text\",\r\n\"text\":\"a\\nb\"}";
    let kind = EventKind::Steered { input: vec![Block::from_json(spread).unwrap()] };
    let line = &lines(&[Event { at: Timestamp::default(), kind }])[0];
    assert!(line.contains(r#"{"type":"text",  "text":"a\nb"}"#) && !line.contains('\n'), "{line}");
}

#[test]
fn the_input_of_a_tool_stays_raw() {
    let call =
        Block::from_json(r#"{"type":"tool_use","id":"a","name":"b","input":{"z":1.0,"a":1e400}}"#).unwrap();
    let response = Box::new(answer(vec![call], StopReason::ToolUse));
    let answered = EventKind::ModelAnswered { turn: conjure_base::TurnId::FIRST, call: 1, response };
    let started = EventKind::ToolStarted { call: id("a"), idempotent: true };
    let told = lines(&[answered, started].map(|kind| Event { at: Timestamp::default(), kind }));
    assert!(told[1].contains(r#""input":{"z":1.0,"a":1e400}"#), "{}", told[1]);
}

#[test]
fn every_stop_has_its_reason() {
    use conjure_conversation::{Limit, ModelError, ModelErrorKind};
    let error = ModelError::new(ModelErrorKind::Connection, "gone");
    let cases = [
        (TurnStop::Answered(StopReason::EndTurn), "end_turn"),
        (TurnStop::Truncated(StopReason::MaxTokens), "cut"),
        (TurnStop::Refused, "refusal"),
        (TurnStop::Limit(Limit::Cost), "budget_reached"),
        (TurnStop::ModelFailed(error), "retries_exhausted"),
        (TurnStop::Interrupted, "interrupted"),
        (TurnStop::Deadline, "deadline"),
    ];
    for (stop, expected) in cases {
        let kind =
            EventKind::TurnFinished { turn: conjure_base::TurnId::FIRST, stop, usage: Usage::default() };
        let told = types(&[Event { at: Timestamp::default(), kind }]);
        assert_eq!(told.last().unwrap(), &format!("session.status_idle {expected}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_has_the_events_of_the_live_session() {
    let fixture =
        Fixture::new(FakeModel::in_turn(vec![calls(&[("bash", "1"), ("deny", "2")]), text("done")]));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    let live = fixture.event_log.0.events();
    let replayed: Vec<Event> = live
        .iter()
        .map(|event| serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap())
        .collect();
    assert_eq!(lines(&replayed), lines(&live));
}
