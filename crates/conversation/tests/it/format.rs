//! Recorded events stay readable, and what the model said stays the same, byte for byte.

use conjure_base::{ContainerId, Digest, SessionId, Timestamp, TurnId};
use conjure_conversation::{
    ApiErrorKind, Block, BlockKind, CallOutcome, Command, CommandKind, CompactionError, Decision, Event,
    EventKind, Grant, GrantScope, InputAnswer, InputAnswers, InputForm, InputQuestion, Limit, Limits,
    Message, ModelError, ModelErrorKind, PinnedSkill, ProfileChange, ResultContent, ResultFrom, SecretNames,
    SessionProfile, SessionState, SideEffects, SkillActivation, StopReason, ToolDefinition, ToolResult,
    ToolServerFailure, TurnStop, Usage, apply, conversation_complete, decide, extract_tool_uses,
    format_tool_results_message, parse_response, tool_servers_note,
};

use crate::support::{FakeModel, Fixture, answer, id, outline, question, reload, start, text, tool_use};

/// Blocks in forms that any reader which parses and writes anew would change.
const ODD: [&str; 6] = [
    r#"{ "text" : "spaced" , "type":"text"}"#,
    r#"{"type":"text","text":"caf\u00e9 \ud83d\ude00 \/","citations":[{"z":1,"a":2}]}"#,
    r#"{"type":"thinking","thinking":"hm","signature":"EqQB//+=="}"#,
    r#"{"type":"redacted_thinking","data":"x"}"#,
    r#"{"unknown":{"b":1.0,"a":1e400,"n":123456789012345678901234567890},"type":"new_block"}"#,
    r#"{"type":"tool_use","id":"t1","name":"read","input":{"b":1.50,"a":-0.0,"e":1E+2},"caller":{"type":"direct"}}"#,
];

fn odd_body() -> String {
    format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{}],
            "stop_reason":"tool_use","stop_sequence":null,"container":{{"id":"c"}},
            "usage":{{"input_tokens":3,"cache_creation_input_tokens":null,"output_tokens":4,"service_tier":"x"}}}}"#,
        ODD.join(" , ")
    )
}

#[tokio::test(start_paused = true)]
async fn what_the_model_said_goes_back_byte_for_byte_also_after_a_reload() {
    let odd = parse_response(&odd_body()).unwrap();
    let fixture = Fixture::new(FakeModel::in_turn(vec![odd, text("done")]));
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("go")).await;
    let check = |message: &Message| {
        let sent: Vec<&str> = message.content.iter().map(Block::json).collect();
        assert_eq!(sent, ODD);
        assert!(serde_json::to_string(message).unwrap().contains(&ODD.join(",")));
    };
    check(&fixture.model.requests.lock().unwrap()[1].messages[1]);

    let state = reload(&fixture.event_log.0.events());
    check(&state.messages()[1]);
    assert_eq!(&state, conversation.state());
}

#[tokio::test(start_paused = true)]
async fn each_request_is_a_byte_prefix_of_the_next() {
    let model = FakeModel::answering(|request| match request.call {
        1 => parse_response(&odd_body()).unwrap(),
        2 => answer(vec![Block::text("hm")], StopReason::PauseTurn),
        3 => answer(vec![tool_use("deny", &format!("d{}", request.turn))], StopReason::ToolUse),
        4 => answer(vec![Block::text("cut")], StopReason::MaxTokens),
        _ => text("done"),
    });
    let fixture = Fixture::new(model);
    let mut conversation = fixture.load().await;
    for words in ["one", "two", "three"] {
        fixture.turn(&mut conversation, start(words)).await;
    }
    let requests = fixture.model.requests.lock().unwrap();
    let bodies: Vec<String> =
        requests.iter().map(|request| serde_json::to_string(&request.messages).unwrap()).collect();
    assert_eq!(bodies.len(), 12);
    for pair in bodies.windows(2) {
        // A message may grow at its end, so the brackets that close it are not part of the prefix.
        let prefix = pair[0].trim_end_matches(']').trim_end_matches('}').trim_end_matches(']');
        assert!(pair[1].starts_with(prefix), "{}\n{}", pair[0], pair[1]);
    }
}

#[test]
fn an_answer_is_read_with_what_is_unknown_passed_over() {
    let response = parse_response(&odd_body()).unwrap();
    assert_eq!(response.usage, Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() });
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    let calls = extract_tool_uses(&response);
    assert_eq!(calls[0].input.get(), r#"{"b":1.50,"a":-0.0,"e":1E+2}"#);
    assert!(!conversation_complete(&response));
    let message = format_tool_results_message(&[ToolResult::text_result(&id("t1"), "out")]);
    assert_eq!(outline(&[message]), ["user: t1=out"]);
    for (body, complete) in [
        (r#"{"content":[],"stop_reason":"tool_use"}"#, true),
        (r#"{"content":[],"stop_reason":"pause_turn"}"#, false),
        (
            r#"{"content":[{"type":"tool_use","id":"a","name":"b","input":{}}],"stop_reason":"max_tokens"}"#,
            true,
        ),
        (r#"{"content":[],"stop_reason":null}"#, true),
    ] {
        assert_eq!(conversation_complete(&parse_response(body).unwrap()), complete, "{body}");
    }
    for body in ["", "[]", "{}", r#"{"content":"text"}"#, r#"{"content":[1]}"#] {
        assert!(parse_response(body).unwrap_err().to_string().starts_with("not a response"), "{body}");
    }
}

/// One event of every kind.
fn every_kind() -> Vec<Event> {
    let error = ModelError {
        request_id: Some("req_1".to_owned()),
        retry_after: Some(std::time::Duration::from_millis(1500)),
        ..ModelError::new(
            ModelErrorKind::Api(ApiErrorKind::InvalidRequest),
            "messages.0.content.0: too large",
        )
    };
    let turn = TurnId::FIRST;
    let mut response = parse_response(&odd_body()).unwrap();
    // The golden file is older than this field.
    assert_eq!(response.container.take(), Some(ContainerId::new("c")));
    response.content.extend(["a", "b", "c", "d"].map(|id| tool_use("bash", id)));
    let call = id;
    let kinds = vec![
        EventKind::Imported { messages: vec![Message::user(vec![Block::text("before")])], container: None },
        EventKind::TurnStarted {
            turn,
            input: vec![Block::text("go")],
            limits: Limits::default(),
            queued: None,
            queued_at: None,
        },
        // Nor was it said what calls may do.
        EventKind::ModelCallStarted { turn, call: 1, effects: None },
        EventKind::ModelCallFailed { turn, call: 1, error: error.clone() },
        EventKind::BlockReplaced { message: 0, block: 0, replacement: Block::text("gone") },
        EventKind::ModelCallStarted { turn, call: 2, effects: None },
        EventKind::ModelCallAbandoned { turn, call: 2 },
        EventKind::ModelCallStarted { turn, call: 3, effects: None },
        EventKind::ModelAnswered { turn, call: 3, response: Box::new(response) },
        EventKind::ApprovalRequested { call: call("a"), reason: "sure?".to_owned() },
        EventKind::ApprovalRequested { call: call("b"), reason: "sure?".to_owned() },
        EventKind::ApprovalDecided { call: call("a"), decision: Decision::Allow },
        EventKind::ApprovalDecided { call: call("b"), decision: Decision::Deny { reason: "no".to_owned() } },
        EventKind::ToolFinished {
            result: ToolResult::error(&call("b"), "denied: no"),
            outcome: CallOutcome::Denied,
        },
        EventKind::ToolStarted { call: call("t1"), idempotent: true },
        EventKind::ToolStarted { call: call("a"), idempotent: false },
        EventKind::ToolAbandoned { call: call("t1") },
        EventKind::Steered { input: vec![Block::text("hurry")] },
        EventKind::ToolFinished {
            result: ToolResult::text_result(&call("t1"), "out"),
            outcome: CallOutcome::Finished,
        },
        EventKind::ToolFinished { result: ToolResult::error(&call("a"), "?"), outcome: CallOutcome::Unknown },
        EventKind::ToolFinished {
            result: ToolResult::error(&call("c"), "?"),
            outcome: CallOutcome::Cancelled,
        },
        EventKind::ToolFinished { result: ToolResult::error(&call("d"), "?"), outcome: CallOutcome::Skipped },
        EventKind::TurnFinished { turn, stop: TurnStop::Limit(Limit::ToolCalls), usage: Usage::default() },
        EventKind::TurnFinished { turn, stop: TurnStop::ModelFailed(error), usage: Usage::default() },
        EventKind::TurnFinished {
            turn,
            stop: TurnStop::Answered(StopReason::EndTurn),
            usage: Usage::default(),
        },
        EventKind::TurnFinished {
            turn,
            stop: TurnStop::Truncated(StopReason::Missing),
            usage: Usage::default(),
        },
        EventKind::TurnFinished { turn, stop: TurnStop::Refused, usage: Usage::default() },
        EventKind::TurnFinished { turn, stop: TurnStop::Deadline, usage: Usage::default() },
        EventKind::TurnFinished { turn, stop: TurnStop::Interrupted, usage: Usage::default() },
    ];
    (0..)
        .zip(kinds)
        .map(|(at, kind)| Event { at: Timestamp::from_millis(1_795_248_000_000 + at), kind })
        .collect()
}

/// The file is what version 1 wrote. It must load for ever; do not write it anew, add a file for a new format.
#[test]
fn events_of_format_1_load_and_are_still_written_so() {
    check_golden(include_str!("../golden/events-v1.jsonl"), &every_kind());
}

/// What a profile holds since sessions are revived by hosts. The same holds for this file.
#[test]
fn a_profile_names_all_that_a_revival_needs_and_no_secret() {
    let names = |names: [&str; 1]| names.map(str::to_owned).into();
    let profile = SessionProfile {
        catalog: Some("sales".to_owned()),
        workspace: Some("/srv/work".into()),
        environment: [("REGION".to_owned(), "north".to_owned())].into(),
        secret_names: SecretNames {
            environment: names(["API_TOKEN"]),
            secrets: names(["PASSWORD"]),
            ..SecretNames::default()
        },
        activation: SkillActivation::View,
        ..SessionProfile::default()
    };
    let open = Command { at: state_time(), kind: CommandKind::Open { profile: Box::new(profile) } };
    let events = decide(&SessionState::default(), open).unwrap();
    check_golden(include_str!("../golden/events-v1-profiles.jsonl"), &events);
}

/// What sessions added to format 1. The same holds for this file.
#[test]
fn events_of_sessions_load_and_are_still_written_so() {
    let input = || vec![Block::text("then this")];
    let mut state = SessionState::default();
    let profile = SessionProfile {
        base_prompt: "Be brief.".to_owned(),
        activation: SkillActivation::View,
        skills: vec![PinnedSkill { name: "sales-report".to_owned(), digest: Digest::of_bytes(b"skill") }],
        limits: Limits { model_calls: 3, ..Limits::default() },
        model: Some("m".to_owned()),
        executor: Some("jail".to_owned()),
        metadata: [("user".to_owned(), "7".to_owned())].into(),
        ..SessionProfile::default()
    };
    let queue = |state: &SessionState| {
        decide(state, Command { at: state_time(), kind: CommandKind::Queue { input: input(), limits: None } })
    };
    let open = Command { at: state_time(), kind: CommandKind::Open { profile: Box::new(profile) } };
    let mut events = decide(&state, open).unwrap();
    apply(&mut state, &events[0]);
    for _ in 0..2 {
        events.extend(queue(&state).unwrap());
        apply(&mut state, events.last().unwrap());
    }
    let last = state.queue().last().unwrap().id;
    let start = CommandKind::StartQueued { limits: Limits::default() };
    for kind in [start, CommandKind::Unqueue { id: last }] {
        events.extend(decide(&state, Command { at: state_time(), kind }).unwrap());
        apply(&mut state, events.last().unwrap());
    }
    // The golden file is older than this field.
    for event in &mut events {
        if let EventKind::TurnStarted { queued_at, .. } = &mut event.kind {
            assert_eq!(queued_at.take(), Some(state_time()));
        }
    }
    check_golden(include_str!("../golden/events-v1-sessions.jsonl"), &events);
}

/// What is queued with limits of its own. The same holds for this file.
#[test]
fn limits_of_what_is_queued_load_and_are_still_written_so() {
    let limits = Limits { model_calls: 3, wall_clock: None, ..Limits::default() };
    let queue = CommandKind::Queue { input: vec![Block::text("then this")], limits: Some(limits) };
    let events = decide(&SessionState::default(), Command { at: state_time(), kind: queue }).unwrap();
    check_golden(include_str!("../golden/events-v1-queued-limits.jsonl"), &events);
}

/// What format 1 says of active skills and of grants. The same holds for this file.
#[test]
fn skills_and_grants_load_and_are_still_written_so() {
    let skill = PinnedSkill { name: "sales-report".to_owned(), digest: Digest::of_bytes(b"skill") };
    let grant = |rule: &str, scope| Decision::Grant { grant: Grant { rule: rule.to_owned(), scope } };
    let kinds = vec![
        EventKind::ApprovalDecided { call: id("a"), decision: grant("view", GrantScope::Session) },
        EventKind::ApprovalDecided {
            call: id("b"),
            decision: grant("bash_tool(git:*)", GrantScope::Skill(skill.clone())),
        },
        EventKind::ToolFinished {
            result: ToolResult::text_result(&id("a"), "loaded").with_active_skills(vec![skill]),
            outcome: CallOutcome::Finished,
        },
        EventKind::ToolFinished {
            result: ToolResult::text_result(&id("b"), "unloaded").with_active_skills(Vec::new()),
            outcome: CallOutcome::Finished,
        },
    ];
    check_kinds(include_str!("../golden/events-v1-standing.jsonl"), kinds);
}

/// What format 1 says of changed models. The same holds for this file.
#[test]
fn changes_of_the_model_load_and_are_still_written_so() {
    let kinds = vec![
        EventKind::ModelChanged { from: None, to: "local".to_owned(), container: None },
        EventKind::ModelChanged {
            from: Some("claude-sonnet-4-5".to_owned()),
            to: "local".to_owned(),
            container: Some(ContainerId::new("container_1")),
        },
        EventKind::ModelChanged {
            from: Some("local".to_owned()),
            to: "claude-sonnet-4-5".to_owned(),
            container: None,
        },
    ];
    check_kinds(include_str!("../golden/events-v1-models.jsonl"), kinds);
}

/// What format 1 says of forks. The same holds for this file.
#[test]
fn forks_load_and_are_still_written_so() {
    let from = SessionId::from_bits(0x1f);
    let kinds = vec![
        EventKind::Forked { from, events: 12, note: None },
        EventKind::Forked { from, events: 34, note: Some(Block::text("[It was copied.]")) },
    ];
    check_kinds(include_str!("../golden/events-v1-forks.jsonl"), kinds);
}

/// What format 1 says of servers of tools that failed. The same holds for this file.
#[test]
fn failed_servers_of_tools_load_and_are_still_written_so() {
    let failure = |server: &str, needs_authorization| ToolServerFailure {
        server: server.to_owned(),
        reason: format!("the MCP server `{server}` could not be started"),
        needs_authorization,
    };
    let failures = vec![failure("git", false), failure("issues", true)];
    let note = Block::text(tool_servers_note(&failures));
    let kinds = [EventKind::ToolServersFailed { failures, note }];
    check_kinds(include_str!("../golden/events-v1-tool-servers.jsonl"), kinds);
}

/// What format 1 says of results from outside, of turns that wait for an action, and of changed settings. The same holds for this file.
#[test]
fn results_from_outside_and_changed_settings_load_and_are_still_written_so() {
    let deadline = Some(Timestamp::from_millis(state_time().millis() + 60_000));
    let tool = ToolDefinition {
        name: "ask_weather".to_owned(),
        description: "Asks the station.".to_owned(),
        input_schema: serde_json::json!({"type": "object"}),
    };
    let change = ProfileChange {
        title: Some("Weather".to_owned()),
        metadata: Some([("user".to_owned(), "7".to_owned())].into()),
        limits: Some(Limits { model_calls: 3, ..Limits::default() }),
        max_cost_micros: Some(2_000_000),
        base_prompt: Some("Be brief.".to_owned()),
        client_tools: Some(vec![tool]),
    };
    let asked = answer(["a", "b", "c"].map(|id| tool_use("ask_weather", id)).into(), StopReason::ToolUse);
    let provided = ToolResult::text_result(&id("a"), "rain");
    let late = ToolResult::error(&id("b"), "nobody provided the result of this call in time");
    let kinds = vec![
        EventKind::ProfileChanged { change: Box::new(change) },
        EventKind::ProfileChanged {
            change: Box::new(ProfileChange { title: Some(String::new()), ..ProfileChange::default() }),
        },
        EventKind::TurnStarted {
            turn: TurnId::FIRST,
            input: vec![Block::text("then this")],
            limits: Limits::default(),
            queued: None,
            queued_at: Some(state_time()),
        },
        EventKind::ModelAnswered { turn: TurnId::FIRST, call: 1, response: Box::new(asked) },
        EventKind::ResultRequested { call: id("a"), from: ResultFrom::Client, deadline: None },
        EventKind::ResultRequested { call: id("b"), from: ResultFrom::Worker, deadline },
        EventKind::ResultRequested { call: id("c"), from: ResultFrom::Input, deadline: None },
        EventKind::ActionRequired { calls: vec![id("a"), id("b"), id("c")] },
        EventKind::ResultProvided { result: provided, from: ResultFrom::Client },
        EventKind::ToolFinished { result: late, outcome: CallOutcome::Expired },
        EventKind::ResultProvided {
            result: ToolResult::text_result(&id("c"), "yes"),
            from: ResultFrom::Worker,
        },
    ];
    check_kinds(include_str!("../golden/events-v1-actions.jsonl"), kinds);
}

/// What format 1 says of the questions of tools. The same holds for this file.
#[test]
fn questions_of_tools_load_and_are_still_written_so() {
    let mut page = question();
    page.state = None;
    let form = InputForm::Url { url: "https://example.com/sign-in".to_owned() };
    page.questions.insert("page".to_owned(), InputQuestion { message: "Sign in".to_owned(), form });
    let content = Some(serde_json::json!({"branch": "main"}));
    let answers = InputAnswers::from([
        ("branch".to_owned(), InputAnswer::Accept { content }),
        ("page".to_owned(), InputAnswer::Accept { content: None }),
    ]);
    let kinds = vec![
        EventKind::InputRequired { call: id("a"), round: 1, request: Box::new(question()) },
        EventKind::InputRequired { call: id("b"), round: 2, request: Box::new(page.clone()) },
        EventKind::InputProvided { call: id("b"), round: 2, answers },
        EventKind::InputProvided { call: id("a"), round: 1, answers: page.answer_all(&InputAnswer::Decline) },
        EventKind::InputProvided { call: id("a"), round: 1, answers: page.answer_all(&InputAnswer::Cancel) },
    ];
    check_kinds(include_str!("../golden/events-v1-input.jsonl"), kinds);
}

/// What format 1 says of compactions. The same holds for this file.
#[test]
fn compactions_load_and_are_still_written_so() {
    let (turn, compaction, kept) = (TurnId::FIRST, 2, 6);
    let usage = Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() };
    let error = ModelError::new(ModelErrorKind::Api(ApiErrorKind::Overloaded), "busy");
    let kinds = vec![
        EventKind::CompactionStarted { turn, compaction, kept, regrowth: 2500 },
        EventKind::CompactionAbandoned { turn, compaction },
        EventKind::Compacted {
            turn,
            compaction,
            kept,
            summary: vec![Block::text("in short"), Block::text("again")],
            usage,
            model: Some("m".to_owned()),
            request_id: Some("req_1".to_owned()),
        },
        EventKind::CompactionFailed {
            turn,
            compaction,
            error: CompactionError::NoProgress { before: 10, after: 11 },
            usage,
        },
        EventKind::CompactionFailed { turn, compaction, error: CompactionError::Empty, usage },
        EventKind::CompactionFailed {
            turn,
            compaction,
            error: CompactionError::Summarizer(error),
            usage: Usage::default(),
        },
    ];
    check_kinds(include_str!("../golden/events-v1-compactions.jsonl"), kinds);
}

/// What a call of format 1 says of its effects. The same holds for this file.
#[test]
fn effects_of_calls_load_and_are_still_written_so() {
    let kinds = [SideEffects::None, SideEffects::Possible].map(|effects| EventKind::ModelCallStarted {
        turn: TurnId::FIRST,
        call: 1,
        effects: Some(effects),
    });
    check_kinds(include_str!("../golden/events-v1-effects.jsonl"), kinds);
}

fn check_kinds(golden: &str, kinds: impl IntoIterator<Item = EventKind>) {
    let expected: Vec<Event> = kinds.into_iter().map(|kind| Event { at: state_time(), kind }).collect();
    check_golden(golden, &expected);
}

fn check_golden(golden: &str, expected: &[Event]) {
    let written: String =
        expected.iter().map(|event| format!("{}\n", serde_json::to_string(event).unwrap())).collect();
    assert_eq!(written, golden);
    let read: Vec<Event> = golden.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, expected);
}

const fn state_time() -> Timestamp {
    Timestamp::from_millis(1_795_248_000_000)
}

#[test]
fn events_of_a_later_format_are_refused_with_a_reason() {
    for version in [0, 2] {
        let line = format!(r#"{{"version":{version},"at":1,"event":{{"tool_abandoned":{{"call":"a"}}}}}}"#);
        let error = serde_json::from_str::<Event>(&line).unwrap_err().to_string();
        assert!(error.contains(&format!("format {version} are unknown to this version")), "{error}");
    }
}

/// Also when a part of it is white space, which does not reach the model: live and recovered sessions see the same.
#[test]
fn the_block_of_a_result_is_understood_as_it_is_read_back() {
    let part = |text: &str| ResultContent::Text { text: text.to_owned() };
    let image = ResultContent::Image { media_type: "image/png".to_owned(), data: "AAAA".to_owned() };
    let contents =
        [vec![part(" \n")], vec![part(""), part("a"), image, part("\t"), part("b")], vec![part(" a ")]];
    for (content, expected) in contents.into_iter().zip(["", "a\nb", " a "]) {
        let result = ToolResult { content, ..ToolResult::error(&id("a"), "") };
        let block = Block::tool_result(&result);
        let read = Block::from_json(block.json()).unwrap();
        assert_eq!(block.kind(), read.kind());
        assert!(matches!(read.kind(), BlockKind::ToolResult { text, .. } if text == expected), "{read:?}");
    }
}

/// Artifacts and produced files, as version 1 wrote them.
#[test]
fn events_of_files_load_and_are_still_written_so() {
    let golden = include_str!("../golden/events-v1-files.jsonl");
    let read: Vec<Event> = golden.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    check_golden(golden, &read);
}
