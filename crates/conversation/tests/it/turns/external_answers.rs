//! Calls whose results or decisions come from outside: in any order, in part, repeatedly, late, and while other calls run.

use conjure_base::{SessionId, Timestamp};
use conjure_conversation::{
    ActionNeed, CallOutcome, CommandKind, Decision, Event, EventKind, EventLog as _, INPUT_ROUNDS,
    InboxMessage, InputAnswer, InputAnswers, InterruptCause, PendingAction, ProfileChange, Receipt,
    Rejection, RequiredNeed, ResultContent, ResultFrom, SessionEvent, SessionEventKind, SessionState,
    SessionStopReason, StartedCall, Step, ToolDefinition, TurnOptions, TurnOutcome, merge_events, next,
};
use futures_util::{StreamExt, stream};

use crate::support::{
    ANSWERED, FakeModel, Fixture, accept_response, calls, id, outline, project, question, start, start_call,
    submit, submit_at, text,
};

fn ok(state: &mut SessionState, kind: CommandKind) -> Vec<Event> {
    submit(state, kind).unwrap()
}

fn provide(call: &str, words: &str) -> CommandKind {
    let content = vec![ResultContent::Text { text: words.to_owned() }];
    CommandKind::ProvideResult { call: id(call), content, is_error: false }
}

fn request(call: &str, deadline: Option<u64>) -> CommandKind {
    let deadline = deadline.map(Timestamp::from_millis);
    CommandKind::RequestResult { call: id(call), from: ResultFrom::Client, deadline }
}

/// A turn whose response calls the client's tool under each of these ids; the second of the calls may be answered until 50.
fn waiting(ids: &[&str]) -> SessionState {
    let mut state = SessionState::default();
    ok(&mut state, start("hi"));
    ok(&mut state, start_call());
    let named: Vec<(&str, &str)> = ids.iter().map(|id| ("client", *id)).collect();
    let accept = accept_response(&state, calls(&named));
    ok(&mut state, accept);
    for (place, id) in ids.iter().enumerate() {
        ok(&mut state, request(id, (place == 1).then_some(50)));
    }
    ok(&mut state, CommandKind::AwaitAction);
    state
}

fn pending(actions: &[PendingAction]) -> Vec<&str> {
    actions.iter().map(|action| action.call.id.as_str()).collect()
}

#[test]
fn results_may_come_in_any_order_and_partly_and_go_back_in_call_order() {
    let mut state = waiting(&["a", "b", "c"]);
    assert_eq!((next(&state), pending(&state.pending_actions())), (Step::AwaitAction, vec!["a", "b", "c"]));
    let events = ok(&mut state, provide("c", "three"));
    let remaining = EventKind::ActionRequired { calls: vec![id("a"), id("b")] };
    assert_eq!(events.last().unwrap().kind, remaining, "the session says what it still waits for");
    assert_eq!(next(&state), Step::AwaitAction);
    ok(&mut state, provide("a", "one"));
    ok(&mut state, provide("b", "two"));
    assert_eq!(next(&state), Step::CallModel);
    assert_eq!(outline(state.messages())[2], "user: a=one | b=two | c=three");
}

#[test]
fn the_same_answer_is_accepted_again_and_another_one_is_refused() {
    let mut state = waiting(&["a", "b"]);
    ok(&mut state, provide("a", "one"));
    let check = |state: &mut SessionState| {
        assert_eq!(ok(state, provide("a", "one")), []);
        let other = submit(state, provide("a", "two")).unwrap_err();
        assert_eq!(other, Rejection::AnsweredDifferently { call: id("a") });
    };
    check(&mut state);
    ok(&mut state, provide("b", "two"));
    // Also when the turn has gone on since.
    check(&mut state);
    let unknown = submit(&mut state, provide("x", "one")).unwrap_err();
    assert_eq!(unknown, Rejection::NoOpenCall { call: id("x") });
}

#[test]
fn only_a_call_that_waits_takes_an_answer() {
    let mut state = waiting(&["a"]);
    let decision = CommandKind::Decide { call: id("a"), decision: Decision::Allow };
    assert!(matches!(submit(&mut state, decision), Err(Rejection::WrongStatus { .. })));
    assert!(matches!(submit(&mut state, request("a", None)), Err(Rejection::WrongStatus { .. })));
    ok(&mut state, provide("a", "one"));
    assert!(matches!(submit(&mut state, CommandKind::AwaitAction), Err(Rejection::NothingAwaited)));
    let mut idle = SessionState::default();
    assert!(matches!(submit(&mut idle, provide("a", "one")), Err(Rejection::NoOpenCall { .. })));
}

#[test]
fn a_result_that_is_overdue_becomes_an_error_and_a_later_one_is_refused() {
    let mut state = waiting(&["a", "b"]);
    assert_eq!(state.result_deadline(), Some(Timestamp::from_millis(50)));
    assert_eq!(submit_at(&mut state, 49, CommandKind::Recover).unwrap(), []);
    let events = submit_at(&mut state, 50, CommandKind::Recover).unwrap();
    let EventKind::ToolFinished { result, outcome } = &events[0].kind else { panic!("{events:?}") };
    assert_eq!((events.len(), result.tool_use_id.as_str(), *outcome), (1, "b", CallOutcome::Expired));
    assert!(matches!(submit_at(&mut state, 51, provide("b", "two")), Err(Rejection::NoOpenCall { .. })));
    ok(&mut state, provide("a", "one"));
    let expected = "user: a=one | b!nobody provided the result of this call in time";
    assert_eq!(outline(state.messages())[2], expected);
}

#[test]
fn an_interruption_ends_the_wait() {
    let mut state = waiting(&["a"]);
    ok(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
    assert_eq!(next(&state), Step::Idle);
    assert_eq!(outline(state.messages())[2], "user: a!not run: the turn was interrupted");
    assert!(matches!(submit(&mut state, provide("a", "one")), Err(Rejection::NoOpenCall { .. })));
}

#[test]
fn settings_change_by_an_event_and_what_the_model_reads_only_between_turns() {
    let mut state = waiting(&["a"]);
    let update = |change: ProfileChange| CommandKind::UpdateProfile { change: Box::new(change) };
    let title = ProfileChange { title: Some("Weather".to_owned()), ..ProfileChange::default() };
    assert_eq!(ok(&mut state, update(title.clone())).len(), 1);
    assert_eq!(ok(&mut state, update(title)), [], "nothing changes");
    assert_eq!(state.profile().unwrap().title.as_deref(), Some("Weather"));
    let tool = ToolDefinition {
        name: "client".to_owned(),
        description: String::new(),
        input_schema: serde_json::json!({"type": "object"}),
    };
    let tools = ProfileChange { client_tools: Some(vec![tool]), ..ProfileChange::default() };
    let prompt = ProfileChange { base_prompt: Some("Be brief.".to_owned()), ..ProfileChange::default() };
    for change in [tools.clone(), prompt] {
        assert_eq!(submit(&mut state, update(change)), Err(Rejection::TurnRunning));
    }
    ok(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
    ok(&mut state, update(tools));
    assert_eq!(state.profile().unwrap().client_tools.len(), 1);
    let gone = ProfileChange { title: Some(String::new()), ..ProfileChange::default() };
    ok(&mut state, update(gone));
    assert_eq!(state.profile().unwrap().title, None);
}

#[tokio::test(start_paused = true)]
async fn other_calls_run_while_the_client_is_awaited_and_the_wait_survives_a_restart() {
    let response = calls(&[("client", "1"), ("bash", "2"), ("write", "3"), ("client", "4")]);
    let fixture = Fixture::new(FakeModel::in_turn(vec![response, text("done")]));
    let mut conversation = fixture.load().await;
    let TurnOutcome::RequiresAction(actions) = fixture.turn(&mut conversation, start("go")).await else {
        panic!("nobody is awaited");
    };
    assert_eq!(pending(&actions), ["1", "4"]);
    assert_eq!(actions[0].need, ActionNeed::Result { from: ResultFrom::Client, deadline: None });
    assert_eq!(fixture.tools.log(), ["start bash 2", "end bash 2", "start write 3", "end write 3"]);

    let mut conversation = fixture.load().await;
    conversation.submit(provide("4", "four")).await.unwrap();
    let again = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert!(matches!(&again, TurnOutcome::RequiresAction(actions) if pending(actions) == ["1"]), "{again:?}");
    conversation.submit(provide("1", "one")).await.unwrap();
    let mut conversation = fixture.load().await;
    assert_eq!(fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap(), ANSWERED);
    let results = "user: 1=one | 2=bash done | 3=write done | 4=four";
    assert_eq!(outline(conversation.state().messages())[2], results);
    assert_eq!(fixture.tools.log().len(), 4, "nothing ran twice");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_a_decision_holds_back_what_follows_and_nothing_before() {
    let response = calls(&[("read", "1"), ("ask", "2"), ("write", "3"), ("ask_write", "4"), ("read", "5")]);
    let fixture = Fixture::new(FakeModel::in_turn(vec![response, text("done")]));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start("go")).await;
    assert!(matches!(&outcome, TurnOutcome::RequiresAction(actions) if pending(actions) == ["2", "4"]));
    assert_eq!(fixture.tools.log(), ["start read 1", "end read 1", "start write 3", "end write 3"]);
    let allow = |call: &str| CommandKind::Decide { call: id(call), decision: Decision::Allow };
    conversation.submit(allow("2")).await.unwrap();
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert!(matches!(&outcome, TurnOutcome::RequiresAction(actions) if pending(actions) == ["4"]));
    assert_eq!(fixture.tools.log()[4..], ["start ask 2", "end ask 2"]);
    conversation.submit(allow("4")).await.unwrap();
    assert_eq!(fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap(), ANSWERED);
    let rest = ["start ask_write 4", "end ask_write 4", "start read 5", "end read 5"];
    assert_eq!(fixture.tools.log()[6..], rest);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_another_call_runs_is_taken_at_once() {
    let response = calls(&[("ask", "1"), ("client", "2"), ("bash", "3")]);
    let fixture = Fixture::new(FakeModel::in_turn(vec![response, text("done")]));
    let mut conversation = fixture.begin("go").await;
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let commands = [CommandKind::Decide { call: id("1"), decision: Decision::Allow }, provide("2", "two")];
    // The model call takes what is posted before the tools run, so the posts come when the call runs.
    let (log, receipts) = (fixture.tools.clone(), std::sync::Arc::clone(&told));
    let inbox = stream::iter(commands).then(move |command| {
        let (log, receipts) = (log.clone(), std::sync::Arc::clone(&receipts));
        async move {
            while log.log().is_empty() {
                crate::support::give_way().await;
            }
            InboxMessage::command(command, move |receipt| receipts.lock().unwrap().push(receipt))
        }
    });
    let options = TurnOptions { inbox: inbox.boxed(), ..TurnOptions::default() };
    assert_eq!(fixture.drive(&mut conversation, options).await.unwrap(), ANSWERED);
    assert_eq!(*told.lock().unwrap(), [Receipt::Recorded, Receipt::Recorded]);
    assert_eq!(fixture.tools.log()[..2], ["start bash 3", "start ask 1"]);
    let results = "user: 1=ask done | 2=two | 3=bash done";
    assert_eq!(outline(conversation.state().messages())[2], results);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_answers_in_time_ends_with_an_error() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![calls(&[("hasty_client", "1")]), text("done")]));
    let mut conversation = fixture.load().await;
    assert_eq!(fixture.turn(&mut conversation, start("go")).await, ANSWERED);
    let expected = "user: 1!nobody provided the result of this call in time";
    assert_eq!(outline(conversation.state().messages())[2], expected);
}

fn kinds(events: &[SessionEvent]) -> Vec<String> {
    let kind = |event: &SessionEvent| {
        let value: serde_json::Value = serde_json::from_str(&event.to_line()).unwrap();
        let stop = value["stop_reason"]["event_ids"].as_array();
        let waits = stop.map_or_else(String::new, |ids| format!(" {}", ids.len()));
        format!("{}{waits}", value["type"].as_str().unwrap())
    };
    events.iter().map(kind).collect()
}

#[tokio::test(start_paused = true)]
async fn session_events_name_all_that_is_awaited_by_the_ids_of_the_calls() {
    let response = calls(&[("client", "1"), ("bash", "2"), ("ask", "3"), ("deny", "4")]);
    let fixture = Fixture::new(FakeModel::in_turn(vec![response, text("done")]));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    conversation.submit(provide("1", "one")).await.unwrap();
    conversation.submit(CommandKind::Decide { call: id("3"), decision: Decision::Allow }).await.unwrap();
    fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    let session = SessionId::from_bits(7);
    let events = project(session, 0, &fixture.event_log.0.events());
    assert_eq!(
        kinds(&events)[3..],
        [
            "span.model_request_end",
            "agent.tool_use",
            "agent.tool_use",
            "agent.tool_result",
            "agent.custom_tool_use",
            "agent.tool_use",
            "agent.tool_result",
            "session.status_idle 2",
            "user.custom_tool_result",
            "session.status_idle 1",
            "user.tool_confirmation",
            "session.status_running",
            "agent.tool_result",
            "span.model_request_start",
            "span.model_request_end",
            "agent.message",
            "session.status_idle",
        ]
    );
    let line =
        |place: usize| -> serde_json::Value { serde_json::from_str(&events[place].to_line()).unwrap() };
    let permissions: Vec<_> = [4, 5, 8].map(|place| line(place)["evaluated_permission"].clone()).into();
    assert_eq!(permissions, ["ask", "deny", "allow"]);
    let waits = line(10);
    assert_eq!(waits["stop_reason"]["event_ids"], serde_json::json!([line(7)["id"], line(4)["id"]]));
    assert_eq!(waits["stop_reason"]["actions"][0]["needs"], "result");
    assert_eq!(line(11)["custom_tool_use_id"], line(7)["id"]);
    assert_eq!(line(13)["tool_use_id"], line(4)["id"]);
    assert_eq!((line(15)["tool_use_id"].clone(), &line(15)["call_id"]), (line(4)["id"].clone(), &"3".into()));
    assert_eq!(line(17)["model_request_start_id"], line(16)["id"]);
    let call = events[7].id.call_in(session).unwrap();
    assert_eq!(call.as_str(), "1");
}

#[test]
fn a_queued_message_is_one_event_whose_processed_at_fills_in() {
    let mut state = waiting(&["a"]);
    let mut record = Vec::new();
    for (millis, words) in [(10, "one"), (11, "two"), (12, "three")] {
        let input = vec![conjure_conversation::Block::text(words)];
        record.extend(submit_at(&mut state, millis, CommandKind::Queue { input, limits: None }).unwrap());
    }
    let second = state.queue().nth(1).unwrap().id;
    record.extend(submit_at(&mut state, 13, CommandKind::Unqueue { id: second }).unwrap());
    ok(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
    let limits = conjure_conversation::Limits::default();
    record.extend(submit_at(&mut state, 20, CommandKind::StartQueued { limits }).unwrap());
    let streamed = project(SessionId::from_bits(7), 0, &record);
    let expected = ["user.message", "user.message", "user.message", "user.unqueued_message", "user.message"];
    assert_eq!(kinds(&streamed)[..5], expected);
    assert_eq!((&streamed[4].id, streamed[4].created_at), (&streamed[0].id, streamed[0].created_at));
    assert_eq!(
        (streamed[0].processed_at, streamed[4].processed_at),
        (None, Some(Timestamp::from_millis(20)))
    );
    let listed = merge_events(streamed);
    assert_eq!(kinds(&listed)[..4], expected[..4]);
    assert_eq!(listed[4].created_at, Timestamp::from_millis(20), "the message stands once");
    let processed: Vec<_> = listed[..3].iter().map(|event| event.processed_at).collect();
    assert_eq!(processed, [Some(Timestamp::from_millis(20)), None, None]);
}

fn accept(branch: &str) -> InputAnswers {
    let content = Some(serde_json::json!({"branch": branch}));
    [("branch".to_owned(), InputAnswer::Accept { content })].into()
}

fn input(call: &str, round: u32, answers: InputAnswers) -> CommandKind {
    CommandKind::ProvideInput { call: id(call), round, answers }
}

/// A turn whose call `a` has run and asks.
fn asking() -> SessionState {
    let mut state = SessionState::default();
    ok(&mut state, start("hi"));
    ok(&mut state, start_call());
    let accept = accept_response(&state, calls(&[("elicit", "a")]));
    ok(&mut state, accept);
    run(&mut state);
    ok(&mut state, require());
    ok(&mut state, CommandKind::AwaitAction);
    state
}

fn run(state: &mut SessionState) {
    let calls = vec![StartedCall { call: id("a"), idempotent: false }];
    ok(state, CommandKind::StartTools { calls });
}

fn require() -> CommandKind {
    CommandKind::RequireInput { call: id("a"), request: Box::new(question()) }
}

#[test]
fn an_answer_is_for_one_round_of_questions_and_may_be_given_again() {
    let mut state = asking();
    assert_eq!(next(&state), Step::AwaitAction);
    let unknown = InputAnswers::from([("other".to_owned(), InputAnswer::Decline)]);
    let asked = "branch".to_owned();
    let refused = submit(&mut state, input("a", 1, unknown)).unwrap_err();
    assert_eq!(refused, Rejection::UnknownQuestion { call: id("a"), asked });
    assert!(matches!(submit(&mut state, input("a", 2, accept("x"))), Err(Rejection::WrongStatus { .. })));
    assert!(matches!(submit(&mut state, provide("a", "x")), Err(Rejection::WrongStatus { .. })));
    ok(&mut state, input("a", 1, accept("main")));
    assert_eq!(next(&state), Step::RunTools);
    run(&mut state);
    ok(&mut state, require());
    // The answer to the first round is repeated: it does not answer the second.
    assert_eq!(ok(&mut state, input("a", 1, accept("main"))), []);
    let other = submit(&mut state, input("a", 1, accept("dev"))).unwrap_err();
    assert_eq!(other, Rejection::AnsweredDifferently { call: id("a") });
    assert!(!state.pending_actions().is_empty());
    let events = ok(&mut state, input("a", 2, InputAnswers::new()));
    let EventKind::InputProvided { answers, .. } = &events[0].kind else { panic!("{events:?}") };
    assert_eq!(answers["branch"], InputAnswer::Cancel, "what is not answered is cancelled");
    assert_eq!(
        ok(&mut state, input("a", 2, InputAnswers::new())),
        [],
        "the same answer, given in the same way"
    );
}

#[test]
fn a_call_asks_only_so_often_and_an_interruption_ends_its_wait() {
    let mut state = asking();
    for round in 1..INPUT_ROUNDS {
        ok(&mut state, input("a", round, accept("main")));
        run(&mut state);
        ok(&mut state, require());
    }
    ok(&mut state, input("a", INPUT_ROUNDS, accept("main")));
    run(&mut state);
    ok(&mut state, require());
    assert_eq!(next(&state), Step::CallModel);
    assert!(outline(state.messages())[2].contains("a!the tool asked for input more than 10 times"));

    let mut state = asking();
    ok(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
    assert!(outline(state.messages())[2].contains("it may have done a part"), "the call has run");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_waits_across_a_restart_and_runs_again_with_the_answers() {
    let response = calls(&[("elicit_write", "1"), ("bash", "2"), ("elicit", "3")]);
    let fixture = Fixture::new(FakeModel::in_turn(vec![response, text("done")]));
    let mut conversation = fixture.load().await;
    let TurnOutcome::RequiresAction(actions) = fixture.turn(&mut conversation, start("go")).await else {
        panic!("nobody is asked");
    };
    assert_eq!(pending(&actions), ["1"]);
    assert!(matches!(&actions[0].need, ActionNeed::Input { round: 1, request } if **request == question()));
    let begun = ["start elicit_write 1", "end elicit_write 1"];
    assert_eq!(
        fixture.tools.log(),
        begun,
        "an exclusive call in the middle of its work holds back the others"
    );

    let mut conversation = fixture.load().await;
    conversation.submit(input("1", 1, accept("main"))).await.unwrap();
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert!(
        matches!(&outcome, TurnOutcome::RequiresAction(actions) if pending(actions) == ["3"]),
        "{outcome:?}"
    );
    let mut conversation = fixture.load().await;
    conversation.submit(input("3", 1, InputAnswers::new())).await.unwrap();
    assert_eq!(fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap(), ANSWERED);
    let results = r#"user: 1=elicit_write done with {"branch":{"action":"accept","content":{"branch":"main"}}} and half | 2=bash done | 3=elicit done with {"branch":{"action":"cancel"}} and half"#;
    assert_eq!(outline(conversation.state().messages())[2], results);

    let events = project(SessionId::from_bits(1), 0, &fixture.event_log.load().await.unwrap());
    let is_question =
        |event: &&SessionEvent| matches!(event.kind, SessionEventKind::AgentInputRequest { .. });
    let asked: Vec<&SessionEvent> = events.iter().filter(is_question).collect();
    let answered: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            SessionEventKind::UserInputResponse { input_request_id, .. } => Some(input_request_id),
            _ => None,
        })
        .collect();
    assert_eq!(asked.iter().map(|event| &event.id).collect::<Vec<_>>(), answered);
    let needs = events.iter().find_map(|event| match &event.kind {
        SessionEventKind::SessionStatusIdle {
            stop_reason: SessionStopReason::RequiresAction { event_ids, actions },
            ..
        } => Some((event_ids, &actions[0].need)),
        _ => None,
    });
    let (event_ids, need) = needs.unwrap();
    assert_eq!(event_ids, &[asked[0].id.clone()]);
    assert!(matches!(need, RequiredNeed::Input { round: 1, asked_by, .. } if asked_by == "git"), "{need:?}");
    let questions = asked[0].to_line();
    assert!(
        questions.contains("Which branch?") && !questions.contains("half"),
        "the state is the tool's alone"
    );
}
