//! Every limit stops the turn with its own stop reason, and the session can continue.

use std::time::Duration;

use conjure_base::Timestamp;
use conjure_conversation::{
    Block, CallOutcome, CommandKind, Decision, Limit, Limits, Response, SessionState, StartedCall, Step,
    StopReason, ToolResult, TurnOptions, TurnOutcome, TurnStop, next,
};

use crate::support::{
    ANSWERED, FakeModel, Fixture, accept_response, answer, calls, id, start, start_call, start_within,
    submit_at, text, tool_use,
};

/// A model that calls another tool with another id in every answer.
fn restless(name: &'static str) -> FakeModel {
    FakeModel::answering(move |request| {
        let id = format!("c{}-{}", request.turn, request.call);
        calls(&[(name, &id)])
    })
}

/// The turn stops by `limit` after `model_calls` calls of the model; then another turn is answered.
async fn check(limits: Limits, model: FakeModel, limit: Limit, model_calls: usize) {
    let fixture = Fixture::new(model);
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start_within("go", limits)).await;
    assert_eq!(outcome, TurnOutcome::Finished(TurnStop::Limit(limit)));
    assert_eq!(fixture.model.request_count(), model_calls, "{limit:?}");
    let fixture = Fixture { model: FakeModel::in_turn(vec![text("fine")]), ..fixture };
    let outcome = fixture.turn(&mut conversation, start("go on")).await;
    assert_eq!(outcome, ANSWERED);
    fixture.model.assert_requests_valid("after a limit");
}

#[tokio::test(start_paused = true)]
async fn model_calls_are_25_by_default() {
    check(Limits::default(), restless("read"), Limit::ModelCalls, 25).await;
}

#[tokio::test(start_paused = true)]
async fn tool_calls_are_limited_and_those_beyond_do_not_run() {
    let limits = Limits { tool_calls: 5, ..Limits::default() };
    let model = FakeModel::answering(|request| {
        let ids = [format!("a{}", request.call), format!("b{}", request.call)];
        calls(&[("bash", &ids[0]), ("bash", &ids[1])])
    });
    check(limits, model, Limit::ToolCalls, 3).await;
}

fn same_call_each_time(request: &conjure_conversation::Request) -> Response {
    let block =
        format!(r#"{{"type":"tool_use","id":"c{}","name":"read","input":{{"path":"/x"}}}}"#, request.call);
    answer(vec![Block::from_json(block).unwrap()], StopReason::ToolUse)
}

#[tokio::test(start_paused = true)]
async fn the_same_call_in_answer_after_answer_is_a_loop() {
    let limits = Limits { identical_calls: 4, ..Limits::default() };
    check(limits, FakeModel::answering(same_call_each_time), Limit::IdenticalCalls, 5).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_call_with_others_between_is_none() {
    let limits = Limits { identical_calls: 1, model_calls: 6, ..Limits::default() };
    let model = FakeModel::answering(|request| match request.call % 2 {
        0 => calls(&[("bash", &format!("c{}", request.call))]),
        _ => same_call_each_time(request),
    });
    check(limits, model, Limit::ModelCalls, 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_tool_asked_for_again_and_again_ends_the_turn() {
    check(Limits::default(), restless("deny"), Limit::DeniedCalls, 3).await;
}

#[tokio::test(start_paused = true)]
async fn many_denials_in_one_answer_count_once() {
    let denied = calls(&[("deny", "a"), ("deny", "b"), ("deny", "c"), ("deny", "d")]);
    let fixture = Fixture::new(FakeModel::in_turn(vec![denied, text("I see")]));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start("go")).await;
    assert_eq!(outcome, ANSWERED);
}

#[tokio::test(start_paused = true)]
async fn tokens_and_cost_are_limited() {
    let limits = Limits { tokens: Some(40), ..Limits::default() };
    check(limits, restless("read"), Limit::Tokens, 3).await;
    let limits = Limits { cost_micros: Some(40), ..Limits::default() };
    let model = FakeModel::answering(|request| {
        let mut response = calls(&[("read", &format!("c{}", request.call))]);
        response.usage.cost_micros = 20;
        response
    });
    check(limits, model, Limit::Cost, 2).await;
}

#[tokio::test(start_paused = true)]
async fn pauses_are_resumed_ten_times() {
    let model = FakeModel::in_turn(vec![answer(vec![Block::text("…")], StopReason::PauseTurn)]);
    check(Limits::default(), model, Limit::Pauses, 11).await;
}

#[tokio::test(start_paused = true)]
async fn the_wall_clock_ends_a_turn_in_the_middle_of_a_tool() {
    let limits = Limits { wall_clock: Some(Duration::from_secs(90)), ..Limits::default() };
    check(limits, restless("hang"), Limit::WallClock, 1).await;
}

/// A turn at given times, in minutes.
#[derive(Default)]
struct Timed(SessionState);

impl Timed {
    fn at(&mut self, minute: u64, kind: CommandKind) {
        submit_at(&mut self.0, minute * 60_000, kind).unwrap();
    }

    fn minutes(&self, minute: u64) -> u64 {
        self.0.turn().unwrap().elapsed(Timestamp::from_millis(minute * 60_000)).as_secs() / 60
    }

    fn answer(&mut self, minute: u64, response: Response) {
        self.at(minute, accept_response(&self.0, response));
    }

    fn run(&mut self, minute: u64, call: &str, minutes: u64) {
        let calls = vec![StartedCall { call: id(call), idempotent: true }];
        self.at(minute, CommandKind::StartTools { calls });
        let result = ToolResult::text_result(&id(call), "out");
        self.at(minute + minutes, CommandKind::FinishTool { result, outcome: CallOutcome::Finished });
    }
}

/// What counts is what the model and the tools take, not how long a person or a dead host takes.
#[test]
fn the_wall_clock_stands_still_while_nothing_works() {
    let mut turn = Timed::default();
    turn.at(0, start("go"));
    turn.at(0, start_call());
    assert_eq!(turn.minutes(10), 10);
    turn.answer(10, calls(&[("bash", "a"), ("bash", "b")]));
    // A person decides after a night.
    turn.at(10, CommandKind::RequestApproval { call: id("a"), reason: "sure?".to_owned() });
    turn.at(700, CommandKind::Decide { call: id("a"), decision: Decision::Allow });
    assert_eq!(turn.minutes(705), 10);
    turn.run(710, "a", 5);
    assert_eq!(turn.minutes(720), 15);
    // The host dies in the middle of the second call, and is there again after days.
    turn.at(720, CommandKind::StartTools { calls: vec![StartedCall { call: id("b"), idempotent: true }] });
    turn.at(9_000, CommandKind::Recover);
    assert_eq!(turn.minutes(9_001), 15);
    turn.run(9_002, "b", 20);
    // And in a call of the model, and before one.
    turn.at(9_100, start_call());
    turn.at(20_000, CommandKind::Recover);
    turn.at(20_000, CommandKind::Recover);
    turn.at(30_000, start_call());
    assert_eq!((turn.minutes(30_000), turn.minutes(30_010)), (35, 45));
    turn.answer(30_025, calls(&[("bash", "c")]));
    turn.run(30_025, "c", 1);
    turn.at(30_026, start_call());
    let stopped = &turn.0.last_turn().unwrap().stop;
    assert_eq!(*stopped, TurnStop::Limit(Limit::WallClock), "an hour of work is over");
}

/// Whoever decides in line may take his time, too, and the driver waits for the rest of it as long as before.
#[tokio::test(start_paused = true)]
async fn the_time_limit_pauses_while_an_approver_decides_inline() {
    let limits = Limits { wall_clock: Some(Duration::from_secs(90)), ..Limits::default() };
    let ponder = |id| calls(&[("ponder", id)]);
    let model = FakeModel::in_turn(vec![ponder("a"), ponder("b"), ponder("c"), calls(&[("hang", "d")])]);
    check(limits, model, Limit::WallClock, 4).await;
}

#[tokio::test(start_paused = true)]
async fn usage_is_summed_per_turn_and_session() {
    let answers = vec![answer(vec![tool_use("read", "a")], StopReason::ToolUse), text("done")];
    let fixture = Fixture::new(FakeModel::in_turn(answers));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("one")).await;
    fixture.turn(&mut conversation, start("two")).await;
    let state = conversation.state();
    assert_eq!(state.last_turn().unwrap().usage.total(), 30);
    assert_eq!(state.usage().total(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_a_turn_survives_a_restart() {
    let fixture = Fixture::new(restless("read"));
    let mut conversation = fixture.load().await;
    let limits = Limits { model_calls: 2, ..Limits::default() };
    conversation.submit(start_within("go", limits)).await.unwrap();
    let mut conversation = fixture.load().await;
    assert_eq!(next(conversation.state()), Step::CallModel);
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert_eq!(outcome, TurnOutcome::Finished(TurnStop::Limit(Limit::ModelCalls)));
}
