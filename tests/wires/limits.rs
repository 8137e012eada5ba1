//! The limits of a turn, and deadlines for a service that does not answer.

use std::time::Duration;

use conjure::conversation::{Limit, LoopOptions, TurnOutcome, TurnStop};
use conjure::session::ContextOptions;
use conjure::{Block, Clock as _, Limits, Message, Skill, SystemClock, Workbench, run_loop};
use serde_json::json;

use crate::support::host::{FORBIDDEN, Host, ask, follow, spec};
use crate::support::test_reply::{TestReply, USAGE, call};
use crate::support::test_wire::{TOKEN_MICROS, TestService, TestWire, on_every_wire};

on_every_wire!(every_limit_stops_its_turn, a_deadline_ends_a_call_that_is_not_answered);

/// A limit, and the calls of a model that runs into it.
struct Case {
    limit: Limit,
    limits: Limits,
    /// The tool that each answer calls.
    tool: &'static str,
    /// Whether each call has another input.
    varies: bool,
    /// How often the model is called until the turn is stopped.
    model_calls: u64,
    /// How many calls have an effect.
    effects: usize,
}

fn cases() -> Vec<Case> {
    let none = Limits::default;
    let answer = USAGE.total();
    let case = |limit, limits, model_calls, effects| Case {
        limit,
        limits,
        tool: "note",
        varies: true,
        model_calls,
        effects,
    };
    vec![
        case(Limit::ModelCalls, Limits { model_calls: 3, ..none() }, 3, 3),
        case(Limit::ToolCalls, Limits { tool_calls: 2, ..none() }, 3, 2),
        // The answer that crosses the limit is complete, so its call runs.
        case(Limit::Tokens, Limits { tokens: Some(2 * answer + 1), ..none() }, 3, 3),
        case(Limit::Cost, Limits { cost_micros: Some(2 * answer * TOKEN_MICROS + 1), ..none() }, 3, 3),
        Case { varies: false, ..case(Limit::IdenticalCalls, Limits { identical_calls: 2, ..none() }, 3, 2) },
        Case { tool: FORBIDDEN, ..case(Limit::DeniedCalls, Limits { denied_calls: 2, ..none() }, 2, 0) },
        Case {
            tool: "hang",
            ..case(Limit::WallClock, Limits { wall_clock: Some(Duration::from_millis(300)), ..none() }, 1, 0)
        },
    ]
}

/// The session continues after each of them.
async fn every_limit_stops_its_turn(wire: TestWire) {
    for Case { limit, limits, tool, varies, model_calls, effects } in cases() {
        let reply = |number| {
            let text = if varies { format!("effect {number}") } else { "the same".to_owned() };
            TestReply::blocks(vec![call(&format!("call_{number}"), tool, &json!({"text": text}))])
        };
        let replies = (0..model_calls).map(reply).chain([TestReply::text("Hello.")]);
        let service = TestService::start(wire, replies).await;
        let host = Host::new();
        let runtime = host.start(&service).await;
        let session = runtime.open(spec()).await.unwrap();
        let mut turn = session.send_with_limits("Go", Some(limits)).await.unwrap();
        assert_eq!(follow(&mut turn).await.0, TurnStop::Limit(limit));
        assert_eq!(service.received(), model_calls, "{limit}");
        assert_eq!(host.tools.lines().len(), effects, "{limit}");
        assert_eq!(ask(&session, "Hi").await, "Hello.", "behind {limit}");
        service.check();
    }
}

/// Both the deadline of `run_loop` and that of a session's turn are tried.
async fn a_deadline_ends_a_call_that_is_not_answered(wire: TestWire) {
    let replies = [TestReply::silence(), TestReply::silence(), TestReply::text("Hello.")];
    let service = TestService::start(wire, replies).await;
    let host = Host::new();
    let workbench =
        Workbench::open(Vec::<Skill>::new(), &host.config(), ContextOptions::default()).await.unwrap();
    let deadline = SystemClock.deadline(Duration::from_millis(200));
    let options = LoopOptions { deadline, ..LoopOptions::default() };
    let question = vec![Message::user(vec![Block::text("Hi")])];
    let outcome = run_loop(question, &workbench, "Be brief.", &service.model(), options).await.unwrap();
    assert_eq!(outcome.stop, TurnOutcome::Finished(TurnStop::Deadline));
    workbench.close().await;

    let runtime = host.start(&service).await;
    let session = runtime.open(spec()).await.unwrap();
    let limits = Limits { wall_clock: Some(Duration::from_millis(200)), ..Limits::default() };
    let mut turn = session.send_with_limits("Hi", Some(limits)).await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Limit(Limit::WallClock));
    assert_eq!(ask(&session, "And now?").await, "Hello.");
    assert_eq!(service.received(), 3);
    service.check();
}
