//! The rules of the machine, one by one.

use conjure_base::TurnId;
use conjure_conversation::{
    Block, CallOutcome, CommandKind, Decision, InterruptCause, Limits, Message, ModelApi, ModelError,
    ModelErrorKind, NativeContent, NativeItem, Origin, PairingError, QUEUE_LIMIT, QueueId, Rejection,
    Response, SessionProfile, SessionState, StartedCall, Step, StopReason, ToolResult, TurnStop, next,
    pairing,
};

use crate::support::{
    accept_response, answer, calls, id, outline, start, start_call, submit, text, tool_use,
};

/// Decides and applies; panics when the machine refuses.
fn ok(state: &mut SessionState, kind: CommandKind) {
    submit(state, kind).unwrap();
}

fn refused(state: &SessionState, kind: CommandKind) -> Rejection {
    submit(&mut state.clone(), kind).unwrap_err()
}

fn answered(state: &mut SessionState, response: Response) {
    ok(state, start_call());
    ok(state, accept_response(state, response));
}

fn run(state: &mut SessionState, call: &str) {
    let calls = vec![StartedCall { call: id(call), idempotent: false }];
    ok(state, CommandKind::StartTools { calls });
    let result = ToolResult::text_result(&id(call), format!("{call} out"));
    ok(state, CommandKind::FinishTool { result, outcome: CallOutcome::Finished });
}

fn steer(state: &mut SessionState, words: &str) {
    ok(state, CommandKind::Steer { input: vec![Block::text(words)] });
}

fn begun() -> SessionState {
    let mut state = SessionState::default();
    ok(&mut state, start("hi"));
    state
}

#[test]
fn results_come_in_call_order_and_then_what_the_user_added() {
    let mut state = begun();
    answered(&mut state, calls(&[("bash", "a"), ("bash", "b")]));
    steer(&mut state, "hurry");
    run(&mut state, "b");
    steer(&mut state, "please");
    assert_eq!(next(&state), Step::RunTools);
    run(&mut state, "a");
    assert_eq!(next(&state), Step::CallModel);
    let expected = ["user: hi", "assistant: bash(a) | bash(b)", "user: a=a out | b=b out | hurry | please"];
    assert_eq!(outline(state.messages()), expected);
}

#[test]
fn a_second_or_unknown_outcome_is_dropped() {
    let mut state = begun();
    answered(&mut state, calls(&[("bash", "a"), ("bash", "b")]));
    run(&mut state, "a");
    let late = |call: &str| CommandKind::FinishTool {
        result: ToolResult::text_result(&id(call), "late"),
        outcome: CallOutcome::Finished,
    };
    assert_eq!(refused(&state, late("a")), Rejection::NoOpenCall { call: id("a") });
    assert_eq!(refused(&state, late("x")), Rejection::NoOpenCall { call: id("x") });
    assert!(matches!(refused(&state, late("b")), Rejection::WrongStatus { .. }));
    ok(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
    assert_eq!(refused(&state, late("b")), Rejection::NoOpenCall { call: id("b") });
}

#[test]
fn an_answer_of_another_call_is_dropped() {
    let mut state = begun();
    ok(&mut state, start_call());
    ok(&mut state, CommandKind::Recover);
    ok(&mut state, start_call());
    let late = CommandKind::AcceptResponse { turn: TurnId::FIRST, call: 1, response: Box::new(text("late")) };
    assert_eq!(refused(&state, late), Rejection::StaleModelCall);
}

#[test]
fn tools_of_a_cut_or_refused_answer_never_run() {
    for reason in [
        StopReason::MaxTokens,
        StopReason::ContextWindowExceeded,
        StopReason::Refusal,
        StopReason::Missing,
        StopReason::Unknown("new".to_owned()),
        StopReason::EndTurn,
    ] {
        let mut state = begun();
        answered(&mut state, answer(vec![tool_use("bash", "a")], reason.clone()));
        assert_eq!(next(&state), Step::Idle, "{reason:?}");
        ok(&mut state, start("go on"));
        let said = outline(state.messages());
        assert!(said[2].starts_with("user: a!not run: "), "{said:?}");
        assert!(said[2].ends_with(" | go on"), "{said:?}");
        assert_eq!(pairing::check(state.messages()), Ok(()));
    }
}

#[test]
fn thinking_that_was_cut_before_its_signature_does_not_go_back() {
    let thinking = |signature: &str| {
        let json = format!(r#"{{"type":"thinking","thinking":"so","signature":"{signature}"}}"#);
        Block::from_json(json).unwrap()
    };
    for (block, reason, goes_back) in [
        (thinking(""), StopReason::MaxTokens, false),
        (thinking("signed"), StopReason::MaxTokens, true),
        (thinking(""), StopReason::EndTurn, true),
    ] {
        let mut state = begun();
        answered(&mut state, answer(vec![block.clone(), Block::text("and")], reason));
        assert_eq!(state.messages()[1].content.contains(&block), goes_back);
        ok(&mut state, start("go on"));
        assert_eq!(pairing::check(state.messages()), Ok(()));
    }
}

#[test]
fn paused_answers_are_continued_in_one_message_without_words_of_the_user() {
    let mut state = begun();
    answered(&mut state, answer(vec![Block::text("one")], StopReason::PauseTurn));
    steer(&mut state, "wait");
    assert_eq!(outline(state.messages()), ["user: hi", "assistant: one"]);
    answered(&mut state, answer(vec![Block::text("two")], StopReason::Compaction));
    answered(&mut state, answer(vec![tool_use("bash", "a")], StopReason::ToolUse));
    run(&mut state, "a");
    let expected = ["user: hi", "assistant: one | two | bash(a)", "user: a=a out | wait"];
    assert_eq!(outline(state.messages()), expected);
}

/// A pause may come with what the service needs to go on, and so may the next one.
#[test]
fn a_paused_answer_and_its_continuation_keep_their_native_form() {
    let said = |text: &str, stop: StopReason| {
        let origin = Origin { api: ModelApi::Gemini, service: "s".to_owned(), model: "m".to_owned() };
        let items = [format!(r#"{{"text":"{text}"}}"#), format!(r#"{{"token":"{text}"}}"#)];
        let items = items.map(|json| NativeItem::from_json(json).unwrap()).to_vec();
        let native = Some(NativeContent { origin, items }.into());
        Response { native, ..answer(vec![Block::text(text)], stop) }
    };
    let mut state = begun();
    let mut expected = Vec::new();
    for (text, stop) in
        [("a", StopReason::PauseTurn), ("b", StopReason::PauseTurn), ("c", StopReason::EndTurn)]
    {
        let response = said(text, stop);
        expected.extend(response.native.clone().unwrap().items.clone());
        answered(&mut state, response);
        assert_eq!(state.messages()[1].native.as_ref().unwrap().items, expected);
    }
    assert_eq!(outline(state.messages()), ["user: hi", "assistant: a | b | c"]);
}

#[test]
fn a_paused_answer_with_calls_of_ours_runs_them() {
    let mut state = begun();
    answered(&mut state, answer(vec![tool_use("bash", "a")], StopReason::PauseTurn));
    assert_eq!(next(&state), Step::RunTools);
}

#[test]
fn what_the_user_adds_to_a_whole_answer_is_answered_in_the_same_turn() {
    let mut state = begun();
    ok(&mut state, start_call());
    steer(&mut state, "also this");
    let accept = accept_response(&state, text("done"));
    ok(&mut state, accept);
    assert_eq!(next(&state), Step::CallModel);
    assert_eq!(outline(state.messages()), ["user: hi", "assistant: done", "user: also this"]);
}

#[test]
fn without_an_answer_the_next_words_join_the_last_message() {
    let mut state = begun();
    ok(&mut state, start_call());
    let error = ModelError::new(ModelErrorKind::Connection, "gone");
    ok(&mut state, CommandKind::FailModelCall { turn: TurnId::FIRST, call: 1, error: error.clone() });
    assert_eq!(state.last_turn().map(|last| &last.stop), Some(&TurnStop::ModelFailed(error)));
    ok(&mut state, start("still there?"));
    answered(&mut state, answer(Vec::new(), StopReason::Refusal));
    ok(&mut state, start("hello?"));
    assert_eq!(outline(state.messages()), ["user: hi | still there? | hello?"]);
}

#[test]
fn an_unanswered_message_can_be_tried_again_without_words_but_an_answered_one_cannot() {
    let mut state = begun();
    let again = || CommandKind::StartTurn { input: vec![Block::text(" ")], limits: Limits::default() };
    assert_eq!(refused(&SessionState::default(), again()), Rejection::EmptyInput);
    ok(&mut state, CommandKind::Interrupt { cause: InterruptCause::Cancelled });
    ok(&mut state, again());
    assert_eq!(refused(&state, again()), Rejection::TurnRunning);
    answered(&mut state, text("hello"));
    assert_eq!(refused(&state, again()), Rejection::EmptyInput);
}

#[test]
fn empty_texts_of_the_model_do_not_enter_the_history() {
    let mut state = begun();
    let content = vec![Block::text(""), tool_use("bash", "a"), Block::text("\n")];
    answered(&mut state, answer(content, StopReason::ToolUse));
    assert_eq!(outline(state.messages()), ["user: hi", "assistant: bash(a)"]);
}

#[test]
fn a_call_id_that_was_there_before_is_made_unique_and_nothing_else_of_the_block_changes() {
    let odd = r#"{"input": {"n":1.0e+2},  "name":"bash", "id" : "a","type":"tool_use","x":[ ]}"#;
    let mut state = begun();
    let content = vec![tool_use("bash", "a"), Block::from_json(odd).unwrap()];
    answered(&mut state, answer(content, StopReason::ToolUse));
    assert_eq!(state.messages()[1].content[1].json(), odd.replace("\"a\"", "\"a_1\""));
    run(&mut state, "a");
    run(&mut state, "a_1");
    answered(&mut state, calls(&[("bash", "a")]));
    run(&mut state, "a_2");
    assert_eq!(pairing::check(state.messages()), Ok(()));
}

#[test]
fn the_user_cannot_speak_as_the_model_or_a_tool() {
    let result = Block::tool_result(&ToolResult::text_result(&id("a"), "x"));
    for block in [tool_use("bash", "a"), result] {
        let start = CommandKind::StartTurn { input: vec![block.clone()], limits: Limits::default() };
        assert!(matches!(refused(&SessionState::default(), start), Rejection::ForeignBlock { .. }));
        let steer = CommandKind::Steer { input: vec![block] };
        assert!(matches!(refused(&begun(), steer), Rejection::ForeignBlock { .. }));
    }
}

#[test]
fn approvals_are_states_that_only_a_decision_ends() {
    let mut state = begun();
    answered(&mut state, calls(&[("bash", "a"), ("bash", "b")]));
    for call in ["a", "b"] {
        ok(&mut state, CommandKind::RequestApproval { call: id(call), reason: "sure?".to_owned() });
    }
    assert_eq!(next(&state), Step::RunTools, "other calls may run");
    ok(&mut state, CommandKind::AwaitAction);
    ok(&mut state, CommandKind::Recover);
    assert_eq!(next(&state), Step::AwaitAction);
    assert_eq!(state.approvals().len(), 2);
    let started = StartedCall { call: id("a"), idempotent: true };
    let start = CommandKind::StartTools { calls: vec![started] };
    assert!(matches!(refused(&state, start), Rejection::WrongStatus { .. }));
    let decision = Decision::Deny { reason: "too risky".to_owned() };
    ok(&mut state, CommandKind::Decide { call: id("a"), decision });
    let allow = || CommandKind::Decide { call: id("b"), decision: Decision::Allow };
    ok(&mut state, allow());
    ok(&mut state, allow());
    let deny = CommandKind::Decide { call: id("b"), decision: Decision::Deny { reason: "no".to_owned() } };
    assert_eq!(refused(&state, deny), Rejection::AnsweredDifferently { call: id("b") });
    run(&mut state, "b");
    assert_eq!(outline(state.messages())[2], "user: a!denied: too risky | b=b out");
}

#[test]
fn an_error_without_content_gets_words() {
    let mut state = begun();
    answered(&mut state, calls(&[("bash", "a")]));
    ok(&mut state, CommandKind::StartTools { calls: vec![StartedCall { call: id("a"), idempotent: false }] });
    let result = ToolResult::error(&id("a"), "");
    ok(&mut state, CommandKind::FinishTool { result, outcome: CallOutcome::Finished });
    assert_eq!(outline(state.messages())[2], "user: a!the tool failed and did not say why");
}

#[test]
fn a_refused_block_is_replaced_once_and_a_result_stays_a_result() {
    let mut state = begun();
    answered(&mut state, calls(&[("bash", "a")]));
    run(&mut state, "a");
    let reject = |state: &SessionState, message, block| CommandKind::RejectBlock {
        turn: TurnId::FIRST,
        call: state.turn().unwrap().model_calls(),
        error: ModelError::new(ModelErrorKind::Protocol, "too large"),
        message,
        block,
    };
    for (message, block) in [(2, 0), (0, 0)] {
        ok(&mut state, start_call());
        let command = reject(&state, message, block);
        ok(&mut state, command);
        assert_eq!(next(&state), Step::CallModel);
    }
    let left_out = "[left out: the service refused this content: too large]";
    let expected =
        [format!("user: {left_out}"), "assistant: bash(a)".to_owned(), format!("user: a!{left_out}")];
    assert_eq!(outline(state.messages()), expected);
    ok(&mut state, start_call());
    for (message, block) in [(2, 0), (1, 0), (9, 9)] {
        let refusal = refused(&state, reject(&state, message, block));
        assert_eq!(refusal, Rejection::NotReplaceable { message, block });
    }
}

#[test]
fn a_history_from_elsewhere_must_be_valid_and_come_first() {
    let bad = vec![Message::assistant(vec![Block::text("hi")])];
    let refusal = refused(&SessionState::default(), CommandKind::Import { messages: bad, container: None });
    assert_eq!(refusal, Rejection::InvalidHistory(PairingError::AssistantFirst));
    let good = vec![Message::user(vec![Block::text("hi")])];
    let refusal = refused(&begun(), CommandKind::Import { messages: good, container: None });
    assert_eq!(refusal, Rejection::HistoryPresent);
}

#[test]
fn the_validator_finds_each_kind_of_damage() {
    let user = |blocks: Vec<Block>| Message::user(blocks);
    let model = |blocks: Vec<Block>| Message::assistant(blocks);
    let hi = || user(vec![Block::text("hi")]);
    let call = || model(vec![tool_use("bash", "a"), tool_use("bash", "b")]);
    let result = |call: &str| Block::tool_result(&ToolResult::text_result(&id(call), "x"));
    let (a, b) = (|| result("a"), || result("b"));
    let no = |id: &str, message| PairingError::Unanswered { message, id: id.to_owned() };
    let cases: Vec<(Vec<Message>, Result<(), PairingError>)> = vec![
        (vec![], Err(PairingError::NoMessages)),
        (vec![hi()], Ok(())),
        (vec![hi(), model(vec![Block::text("paused")])], Ok(())),
        (vec![hi(), call(), user(vec![a(), b(), Block::text("and")])], Ok(())),
        (vec![hi(), hi()], Err(PairingError::SameRole { message: 1 })),
        (vec![user(vec![])], Err(PairingError::EmptyMessage { message: 0 })),
        (vec![user(vec![Block::text(" ")])], Err(PairingError::EmptyText { message: 0, block: 0 })),
        (vec![hi(), call()], Err(no("a", 2))),
        (vec![hi(), call(), user(vec![b(), a()])], Err(no("a", 2))),
        (vec![hi(), call(), user(vec![a()])], Err(no("b", 2))),
        (vec![hi(), call(), user(vec![Block::text("no"), a(), b()])], Err(no("a", 2))),
        (
            vec![hi(), call(), user(vec![a(), b(), a()])],
            Err(PairingError::Orphan { message: 2, block: 2, id: "a".to_owned() }),
        ),
        (vec![user(vec![a()])], Err(PairingError::Orphan { message: 0, block: 0, id: "a".to_owned() })),
        (
            vec![hi(), call(), user(vec![a(), b()]), call(), user(vec![a(), b()])],
            Err(PairingError::DuplicateId { message: 3, id: "a".to_owned() }),
        ),
        (
            vec![user(vec![tool_use("bash", "a")])],
            Err(PairingError::WrongRole { message: 0, block: 0, kind: "tool_use" }),
        ),
    ];
    for (messages, expected) in cases {
        assert_eq!(pairing::check(&messages), expected, "{:?}", outline(&messages));
    }
}

fn queue(state: &mut SessionState, words: &str) -> QueueId {
    ok(state, CommandKind::Queue { input: vec![Block::text(words)], limits: None });
    state.queue().last().unwrap().id
}

#[test]
fn what_is_queued_has_its_turn_in_its_order() {
    let start_next = || CommandKind::StartQueued { limits: Limits::default() };
    let mut state = begun();
    let ids = ["one", "two", "three"].map(|words| queue(&mut state, words));
    assert_eq!(ids.map(QueueId::get), [1, 2, 3]);
    assert_eq!(refused(&state, start_next()), Rejection::TurnRunning);
    ok(&mut state, CommandKind::Unqueue { id: ids[1] });
    assert_eq!(refused(&state, CommandKind::Unqueue { id: ids[1] }), Rejection::NotQueued { id: ids[1] });
    for _ in 0..2 {
        answered(&mut state, text("done"));
        ok(&mut state, start_next());
    }
    answered(&mut state, text("done"));
    let expected =
        ["user: hi", "assistant: done", "user: one", "assistant: done", "user: three", "assistant: done"];
    assert_eq!(outline(state.messages()), expected);
    assert_eq!(refused(&state, start_next()), Rejection::QueueEmpty);
    // An id is given once, also when what had it is gone.
    assert_eq!(queue(&mut state, "four").get(), 4);
}

#[test]
fn what_is_queued_with_limits_begins_with_them() {
    let within = |model_calls| Limits { model_calls, ..Limits::default() };
    let mut state = begun();
    for limits in [Some(within(3)), None] {
        ok(&mut state, CommandKind::Queue { input: vec![Block::text("more")], limits });
    }
    for expected in [3, 7] {
        answered(&mut state, text("done"));
        ok(&mut state, CommandKind::StartQueued { limits: within(7) });
        assert_eq!(state.turn().unwrap().limits().model_calls, expected);
    }
}

#[test]
fn the_queue_is_bounded_and_takes_what_a_user_may_say() {
    let mut state = SessionState::default();
    for _ in 0..QUEUE_LIMIT {
        queue(&mut state, "more");
    }
    let more = |input| CommandKind::Queue { input, limits: None };
    assert_eq!(refused(&state, more(vec![Block::text("x")])), Rejection::QueueFull { limit: QUEUE_LIMIT });
    assert_eq!(refused(&begun(), more(vec![Block::text(" ")])), Rejection::EmptyInput);
    let foreign = refused(&begun(), more(vec![tool_use("bash", "a")]));
    assert_eq!(foreign, Rejection::ForeignBlock { kind: "tool_use".to_owned() });
}

#[test]
fn a_session_is_opened_once_and_before_anything_else() {
    let profile = SessionProfile { base_prompt: "Be brief.".to_owned(), ..SessionProfile::default() };
    let open = || CommandKind::Open { profile: Box::new(profile.clone()) };
    let mut state = SessionState::default();
    ok(&mut state, open());
    assert_eq!(state.profile().map(|profile| &**profile), Some(&profile));
    assert_eq!(refused(&state, open()), Rejection::AlreadyOpened);
    assert_eq!(refused(&begun(), open()), Rejection::AlreadyOpened);
    let messages = vec![Message::user(vec![Block::text("before")])];
    ok(&mut state, CommandKind::Import { messages, container: None });
    assert_eq!(state.messages().len(), 1);
}
