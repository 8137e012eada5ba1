//! The table of the guide, and every recorded event: what the API's clients see is what the guide says, and the official SDK accepts it in its
//! strict mode.

use std::fs;
use std::path::{Path, PathBuf};

use conjure_base::{SessionId, Timestamp};
use conjure_conversation::{
    Event, EventProjection, Limit, SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind,
    SessionStopReason as Stop, StopReason, ToolServerFailure,
};
use serde_json::{Value, json};
use test_support::Python;

use super::api_events;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The events of the recorded conversations that pin the form, in which each kind occurs.
fn recorded_events() -> Vec<SessionEvent> {
    let dir = fs::read_dir(root().join("crates/conversation/tests/golden")).unwrap();
    let mut files: Vec<PathBuf> = dir.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut events = Vec::new();
    for file in files {
        let mut projection = EventProjection::new(SessionId::from_bits(1));
        for (seq, line) in (0..).zip(fs::read_to_string(file).unwrap().lines()) {
            if let Ok(event) = serde_json::from_str::<Event>(line) {
                events.extend(projection.apply(seq, &event));
            }
        }
    }
    events
}

fn event(kind: SessionEventKind) -> SessionEvent {
    let model = recorded_events().remove(0);
    SessionEvent { schema: SESSION_EVENT_SCHEMA, created_at: Timestamp::from_millis(1), kind, ..model }
}

fn as_json(event: &SessionEvent) -> Vec<Value> {
    api_events(event).iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

fn idle(stop_reason: Stop) -> SessionEvent {
    event(SessionEventKind::SessionStatusIdle { stop_reason, usage: None })
}

/// The stop reasons in the words of the guide's table.
fn stop_reasons() -> Vec<(&'static str, Vec<Stop>)> {
    let limit = |limit| Stop::BudgetReached { limit };
    vec![
        (
            "`end_turn`, `refusal`, `retries_exhausted`, `requires_action`",
            vec![
                Stop::EndTurn,
                Stop::Refusal,
                Stop::RetriesExhausted,
                Stop::RequiresAction { event_ids: Vec::new(), actions: Vec::new() },
            ],
        ),
        (
            "`budget_reached` by tokens or cost",
            [Limit::Tokens, Limit::Cost, Limit::TenantTokens, Limit::TenantCost].map(limit).into(),
        ),
        (
            "`budget_reached` by tool calls",
            [Limit::ToolCalls, Limit::IdenticalCalls, Limit::DeniedCalls].map(limit).into(),
        ),
        (
            "`budget_reached` by model calls, pauses or time",
            [Limit::ModelCalls, Limit::Pauses, Limit::WallClock].map(limit).into(),
        ),
        ("`cut`", vec![Stop::Cut { reason: StopReason::MaxTokens }]),
        ("`deadline`", vec![Stop::Deadline]),
        ("`outcome_unknown`", vec![Stop::OutcomeUnknown]),
    ]
}

/// What the API shows of a stop reason, in the words of the guide's table.
fn shown(stop: &Stop) -> String {
    let events = as_json(&idle(stop.clone()));
    let told: Vec<String> = events
        .iter()
        .map(|event| match event["type"].as_str().unwrap() {
            "session.error" => format!("`session.error` with `{}`", event["error"]["type"].as_str().unwrap()),
            "session.status_idle" => format!("`{}`", event["stop_reason"]["type"].as_str().unwrap()),
            other => other.to_owned(),
        })
        .collect();
    told.join(", then ")
}

#[test]
fn stop_reasons_are_shown_as_the_guide_says() {
    let guide = fs::read_to_string(root().join("docs/guide/src/server.md")).unwrap();
    for (words, stops) in stop_reasons() {
        for stop in stops {
            let own = serde_json::to_value(&stop).unwrap()["type"].as_str().unwrap().to_owned();
            let shown = shown(&stop);
            let right = if shown == format!("`{own}`") && words.contains(',') { "the same" } else { &shown };
            let row = format!("| {words} | {right} |");
            assert!(guide.contains(&row), "the guide has no `{row}`");
        }
    }
    // The interruption is an event before the end.
    assert_eq!(shown(&Stop::Interrupted), "`end_turn`");
    let interrupt = as_json(&event(SessionEventKind::UserInterrupt {}));
    assert_eq!(interrupt[0]["type"], "user.interrupt");
}

#[tokio::test]
async fn the_official_sdk_accepts_every_event_in_its_strict_mode() {
    let check = "import anthropic; assert anthropic.__version__ == '2.12.0'";
    let Some(python) = Python::find("CONJURE_ORACLE_PYTHON_AGENTS", check, "`anthropic` 2.12.0").await else {
        return;
    };
    let failures = [true, false].map(|needs_authorization| {
        let (server, reason) = ("git".to_owned(), "it has ended".to_owned());
        event(SessionEventKind::ToolServerFailed {
            failure: ToolServerFailure { server, reason, needs_authorization },
        })
    });
    let stops = stop_reasons().into_iter().flat_map(|(_, stops)| stops).chain([Stop::Interrupted]);
    let events = recorded_events().into_iter().chain(stops.map(idle)).chain(failures);
    let shown: Vec<Value> = events.flat_map(|event| as_json(&event)).collect();
    let kinds: std::collections::BTreeSet<&str> =
        shown.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(kinds.len() > 15, "{kinds:?}");
    let program = root().join("tests/sdk/programs/check_events.py");
    let problems = python.run_json(&[program.to_str().unwrap()], &json!(shown)).await;
    assert_eq!(problems, json!([]));
    let bad = json!([{"type": "session.status_idle", "id": "a", "processed_at": null, "stop_reason": {"type": "cut"}}]);
    let problems = python.run_json(&[program.to_str().unwrap()], &bad).await;
    assert_eq!(problems.as_array().map(Vec::len), Some(1), "{problems}");
}
