//! The machine under arbitrary commands, sensible and not: the history stays valid, the record rebuilds the
//! state, and each request continues the one before.

use std::collections::HashSet;

use conjure_base::{ContainerId, Digest, SessionId, Timestamp, TurnId};
use conjure_conversation::{
    ApiErrorKind, Block, CallOutcome, Command, CommandKind, CompactionPolicy, Decision, Event, EventKind,
    EventProjection, Grant, GrantScope, HostedSupport, InputAnswer, InputAnswers, InterruptCause, Limits,
    Message, ModelError, ModelErrorKind, PinnedSkill, ProfileChange, QUEUE_LIMIT, QueueId, Response,
    ResultContent, ResultFrom, SessionEvent, SessionOverview, SessionState, SideEffects, StartedCall, Step,
    StopReason, Summary, ToolResult, Usage, apply, decide, merge_events, next, pairing,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{id, project, question, tool_use};

/// As long as makes a summary worth it, or not.
const LONG: &str = match std::str::from_utf8(&[b'x'; 500]) {
    Ok(text) => text,
    Err(_) => "",
};

/// Commands that name the turn and call at hand are given them when they are used, most of the time: else
/// nearly all would be late.
#[derive(Debug, Clone)]
enum Op {
    Plain(CommandKind),
    Answer { late: bool, response: Response },
    Fail { late: bool },
    Reject { message: usize, block: usize },
    StartAll { idempotent: bool },
    FinishSome { place: usize, result: ToolResult },
    Compact { late: bool, words: &'static str, preserved: Option<String> },
    FailCompaction { late: bool },
    Unqueue { place: usize },
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let texts = ["", " \n", "hello", "[]", LONG].map(Block::text);
    let others = [
        Block::from_json(r#"{"type":"image","source":{"type":"url","url":"x"}}"#).unwrap(),
        Block::from_json(r#"{"z":1.00,"type":"server_tool_use","id":"s","name":"n","input":{}}"#).unwrap(),
        Block::from_json(r#"{"type":"thinking","thinking":"","signature":"s"}"#).unwrap(),
        Block::from_json(r#"{"type":"tool_result","tool_use_id":"a","content":"x"}"#).unwrap(),
        tool_use("bash", "a"),
    ];
    let block = prop_oneof![6 => select(texts.to_vec()), 1 => select(others.to_vec())];
    vec(block, 0..3)
}

fn response() -> impl Strategy<Value = Response> {
    let stop = select(vec![
        StopReason::ToolUse,
        StopReason::ToolUse,
        StopReason::EndTurn,
        StopReason::PauseTurn,
        StopReason::Compaction,
        StopReason::MaxTokens,
        StopReason::Refusal,
        StopReason::Missing,
        StopReason::Unknown("later".to_owned()),
    ]);
    let calls = vec(select(vec!["a", "b", "c", "d"]), 0..4);
    let container = select(vec![None, None, Some(ContainerId::new("c_1"))]);
    (blocks(), calls, stop, 1..20u64, container).prop_map(
        |(mut content, calls, stop_reason, input_tokens, container)| {
            content.extend(calls.into_iter().map(|id| tool_use("bash", id)));
            let usage = Usage { input_tokens, ..Usage::default() };
            Response { usage, container, ..Response::new(content, stop_reason) }
        },
    )
}

fn result() -> impl Strategy<Value = ToolResult> {
    let text = select(vec!["", "out"]);
    let active = proptest::option::weighted(0.3, vec(skill(), 0..3));
    (select(vec!["a", "b", "c", "a_3"]), text, any::<bool>(), active).prop_map(
        |(call, text, is_error, active_skills)| ToolResult {
            is_error,
            active_skills,
            ..ToolResult::text_result(&id(call), text)
        },
    )
}

fn skill() -> impl Strategy<Value = PinnedSkill> {
    (select(vec!["x", "y"]), select(vec!["1", "2"])).prop_map(|(name, content)| PinnedSkill {
        name: name.to_owned(),
        digest: Digest::of_bytes(content.as_bytes()),
    })
}

fn grant() -> impl Strategy<Value = Grant> {
    let scope = prop_oneof![Just(GrantScope::Session), skill().prop_map(GrantScope::Skill)];
    (select(vec!["view", "bash_tool(git:*)"]), scope)
        .prop_map(|(rule, scope)| Grant { rule: rule.to_owned(), scope })
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..6u32, 1..9u32, 1..4u32).prop_map(|(model_calls, tool_calls, small)| Limits {
        model_calls,
        tool_calls,
        identical_calls: small,
        denied_calls: small,
        pauses: small,
        tokens: Some(60),
        ..Limits::default()
    })
}

fn effects() -> impl Strategy<Value = SideEffects> {
    select(vec![SideEffects::None, SideEffects::None, SideEffects::Possible])
}

fn call_id() -> impl Strategy<Value = conjure_base::CallId> {
    select(vec!["a", "b", "c"]).prop_map(id)
}

fn op() -> impl Strategy<Value = Op> {
    let history = vec(
        (any::<bool>(), blocks()).prop_map(|(user, content)| {
            if user { Message::user(content) } else { Message::assistant(content) }
        }),
        0..3,
    );
    let outcome = select(vec![CallOutcome::Finished, CallOutcome::Cancelled]);
    let cause = select(vec![InterruptCause::Cancelled, InterruptCause::Deadline, InterruptCause::WallClock]);
    let decision = prop_oneof![
        select(vec![Decision::Allow, Decision::Deny { reason: "no".to_owned() }]),
        grant().prop_map(|grant| Decision::Grant { grant }),
    ];
    prop_oneof![
        1 => history.prop_map(|messages| Op::Plain(CommandKind::Import { messages, container: None })),
        6 => (blocks(), limits())
            .prop_map(|(input, limits)| Op::Plain(CommandKind::StartTurn { input, limits })),
        10 => effects().prop_map(|effects| Op::Plain(CommandKind::StartModelCall { effects })),
        10 => (prop::bool::weighted(0.1), response())
            .prop_map(|(late, response)| Op::Answer { late, response }),
        2 => prop::bool::weighted(0.2).prop_map(|late| Op::Fail { late }),
        2 => (0..6usize, 0..3usize).prop_map(|(message, block)| Op::Reject { message, block }),
        2 => call_id().prop_map(|call| {
            Op::Plain(CommandKind::RequestApproval { call, reason: "why".to_owned() })
        }),
        2 => (call_id(), proptest::option::of(0..90u64)).prop_map(|(call, deadline)| {
            let deadline = deadline.map(Timestamp::from_millis);
            Op::Plain(CommandKind::RequestResult { call, from: ResultFrom::Client, deadline })
        }),
        4 => (call_id(), select(vec!["", "out"]), any::<bool>()).prop_map(|(call, text, is_error)| {
            let content = vec![ResultContent::Text { text: text.to_owned() }];
            Op::Plain(CommandKind::ProvideResult { call, content, is_error })
        }),
        3 => Just(Op::Plain(CommandKind::AwaitAction)),
        3 => call_id()
            .prop_map(|call| Op::Plain(CommandKind::RequireInput { call, request: Box::new(question()) })),
        4 => (call_id(), 1..3u32, any::<bool>()).prop_map(|(call, round, declines)| {
            let answers = if declines { question().answer_all(&InputAnswer::Decline) } else { InputAnswers::new() };
            Op::Plain(CommandKind::ProvideInput { call, round, answers })
        }),
        1 => select(vec!["", "x"]).prop_map(|text| {
            let change = ProfileChange {
                title: Some(text.to_owned()),
                base_prompt: Some(text.to_owned()),
                ..ProfileChange::default()
            };
            Op::Plain(CommandKind::UpdateProfile { change: Box::new(change) })
        }),
        2 => (call_id(), decision)
            .prop_map(|(call, decision)| Op::Plain(CommandKind::Decide { call, decision })),
        2 => call_id()
            .prop_map(|call| Op::Plain(CommandKind::DenyTool { call, reason: "no".to_owned() })),
        6 => any::<bool>().prop_map(|idempotent| Op::StartAll { idempotent }),
        10 => (0..4usize, result()).prop_map(|(place, result)| Op::FinishSome { place, result }),
        2 => (result(), outcome)
            .prop_map(|(result, outcome)| Op::Plain(CommandKind::FinishTool { result, outcome })),
        3 => blocks().prop_map(|input| Op::Plain(CommandKind::Steer { input })),
        1 => cause.prop_map(|cause| Op::Plain(CommandKind::Interrupt { cause })),
        2 => Just(Op::Plain(CommandKind::Recover)),
        1 => prop_oneof![Just(HostedSupport::None), Just(HostedSupport::Skills)].prop_map(|hosted| {
            let model = format!("{hosted:?}");
            Op::Plain(CommandKind::SetModel { model, hosted })
        }),
        1 => Just(Op::Plain(CommandKind::Open { profile: Box::default() })),
        6 => (blocks(), proptest::option::of(limits()))
            .prop_map(|(input, limits)| Op::Plain(CommandKind::Queue { input, limits })),
        3 => limits().prop_map(|limits| Op::Plain(CommandKind::StartQueued { limits })),
        1 => (0..3usize).prop_map(|place| Op::Unqueue { place }),
        6 => (1..10u64, 0..5usize, 0..4u64).prop_map(|(threshold, keep, regrowth)| {
            let policy = CompactionPolicy::with_threshold(threshold).with_kept_messages(keep).with_regrowth(regrowth);
            Op::Plain(CommandKind::StartCompaction { policy })
        }),
        6 => (prop::bool::weighted(0.1), select(vec!["in short", " ", LONG]), any::<bool>()).prop_map(
            |(late, words, again)| Op::Compact { late, words, preserved: again.then(|| "again".to_owned()) }
        ),
        1 => any::<bool>().prop_map(|late| Op::FailCompaction { late }),
    ]
}

fn command(state: &SessionState, op: Op) -> CommandKind {
    let current = |late: bool| {
        let turn = state.turn().map_or(TurnId::FIRST, |turn| turn.id());
        let call = state.turn().map_or(0, |turn| turn.model_calls());
        (turn, call + u32::from(late))
    };
    let error = ModelError::new(ModelErrorKind::Api(ApiErrorKind::InvalidRequest), "no");
    match op {
        Op::Plain(kind) => kind,
        Op::Answer { late, response } => {
            let (turn, call) = current(late);
            CommandKind::AcceptResponse { turn, call, response: Box::new(response) }
        }
        Op::Fail { late } => {
            let (turn, call) = current(late);
            CommandKind::FailModelCall { turn, call, error }
        }
        Op::Reject { message, block } => {
            let (turn, call) = current(false);
            CommandKind::RejectBlock { turn, call, error, message, block }
        }
        Op::Compact { late, words, preserved } => {
            let (turn, compaction) = compaction(state, late);
            let usage = Usage { input_tokens: 1, ..Usage::default() };
            let summary = Summary { text: words.to_owned(), usage, ..Summary::default() };
            CommandKind::Compact { turn, compaction, summary, preserved }
        }
        Op::FailCompaction { late } => {
            let (turn, compaction) = compaction(state, late);
            CommandKind::FailCompaction { turn, compaction, error }
        }
        Op::StartAll { idempotent } => {
            let open = state.open_calls().iter().map(|open| open.call.id.clone());
            CommandKind::StartTools { calls: open.map(|call| StartedCall { call, idempotent }).collect() }
        }
        Op::Unqueue { place } => {
            let id = state.queue().nth(place).map_or_else(QueueId::default, |queued| queued.id);
            CommandKind::Unqueue { id }
        }
        Op::FinishSome { place, mut result } => {
            if let Some(open) = state.open_calls().get(place) {
                result.tool_use_id = open.call.id.clone();
            }
            CommandKind::FinishTool { result, outcome: CallOutcome::Finished }
        }
    }
}

/// The turn and the compaction at hand, or one that is not.
fn compaction(state: &SessionState, late: bool) -> (TurnId, u32) {
    let turn = state.turn().map_or(TurnId::FIRST, |turn| turn.id());
    (turn, state.turn().map_or(0, |turn| turn.compactions()) + u32::from(late))
}

fn replay(events: &[Event]) -> SessionState {
    let mut state = SessionState::default();
    for event in events {
        let line = serde_json::to_string(event).unwrap();
        let read: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(read, *event, "the event reads back as it was written: {line}");
        apply(&mut state, &read);
    }
    state
}

/// Every block that a request holds, with its role, in order.
fn flat(state: &SessionState) -> Vec<String> {
    let messages = state.messages().iter();
    messages.flat_map(|m| m.content.iter().map(|b| format!("{:?} {}", m.role, b.json()))).collect()
}

/// The same, should a pause at its end not be resumed: what the service was asked for there is not awaited any more.
fn settled(request: &[String]) -> Vec<String> {
    let asks = r#""type":"server_tool_use""#;
    let told = r#"Assistant {"type":"text","text":"[a tool of the service was running here; what came of it is not known]"}"#;
    let paused = request.iter().rev().take_while(|block| block.starts_with("Assistant")).count();
    let (before, paused) = request.split_at(request.len() - paused);
    let settle = |block: &String| if block.contains(asks) { told.to_owned() } else { block.clone() };
    before.iter().cloned().chain(paused.iter().map(settle)).collect()
}

/// A projection may begin at each start, and no two events have one id, but for messages that are told again.
fn check_projection(record: &[Event]) -> Result<(), TestCaseError> {
    let session = SessionId::from_bits(7);
    let all = project(session, 0, record);
    for (seq, event) in record.iter().enumerate().filter(|(_, event)| EventProjection::is_start(&event.kind))
    {
        let rest = project(session, seq as u64, &record[seq..]);
        let lines = |events: &[SessionEvent]| events.iter().map(SessionEvent::to_line).collect::<Vec<_>>();
        prop_assert_eq!(lines(&all[all.len() - rest.len()..]), lines(&rest), "from {:?}", event);
    }
    let mut ids = HashSet::new();
    for event in merge_events(all) {
        prop_assert!(ids.insert(event.id.clone()), "{} is there twice", event.id);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_commands_leave_a_valid_history_that_its_record_rebuilds(ops in vec(op(), 1..80)) {
        let mut state = SessionState::default();
        let mut record: Vec<Event> = Vec::new();
        let mut request: Vec<String> = Vec::new();
        let mut messages_before: Vec<std::sync::Arc<Message>> = Vec::new();
        let mut waiting: Vec<QueueId> = Vec::new();
        let mut active: Vec<PinnedSkill> = Vec::new();
        let mut granted: Vec<Grant> = Vec::new();
        let mut under_way: Option<SideEffects> = None;
        let mut to_be_told = false;
        for (moment, op) in (0u64..).zip(ops) {
            let command = Command { at: Timestamp::from_millis(moment), kind: command(&state, op) };
            let Ok(events) = decide(&state, command) else { continue };
            // The overview that is stored with the events is that of the state behind them.
            let overview = SessionOverview::after(&state, &events);
            let mut after = state.clone();
            events.iter().for_each(|event| apply(&mut after, event));
            prop_assert_eq!(SessionOverview::of(&after), overview);
            for event in events {
                // A queue by its own rules: each input is taken at most once, and in its order.
                match &event.kind {
                    EventKind::Queued { id, .. } => {
                        prop_assert!(waiting.last().is_none_or(|last| last < id));
                        waiting.push(*id);
                    }
                    EventKind::Unqueued { id } => waiting.retain(|waiting| waiting != id),
                    EventKind::TurnStarted { queued: Some(id), .. } => prop_assert_eq!(waiting.remove(0), *id),
                    EventKind::Opened { .. } => prop_assert_eq!(record.len(), 0),
                    // Only a call that can have done nothing is forgotten, and so sent again.
                    EventKind::ModelCallStarted { effects, .. } => {
                        under_way = *effects;
                        to_be_told = *effects == Some(SideEffects::Possible);
                    }
                    EventKind::ModelCallAbandoned { .. } => {
                        prop_assert_eq!(under_way.take(), Some(SideEffects::None));
                    }
                    EventKind::ModelCallFailed { error, .. } if error.kind == ModelErrorKind::OutcomeUnknown => {
                        prop_assert_eq!(under_way, Some(SideEffects::Possible));
                    }
                    // Of a call that may have acted and was broken off, the model is told, once, before its turn ends.
                    EventKind::NoteAdded { .. } => prop_assert!(std::mem::take(&mut to_be_told)),
                    EventKind::ModelAnswered { .. }
                    | EventKind::ModelCallFailed { .. }
                    | EventKind::TurnFinished { .. } => {
                        let is_over = matches!(event.kind, EventKind::TurnFinished { .. });
                        prop_assert!(!is_over || !to_be_told, "nobody says what the call may have done");
                        under_way = None;
                        to_be_told = false;
                    }
                    // What is active is what the last result says that changed it, and nothing else changes it.
                    EventKind::ToolFinished { result: ToolResult { active_skills: Some(now), .. }, outcome } => {
                        prop_assert!(!matches!(outcome, CallOutcome::Unknown | CallOutcome::Skipped));
                        active.clone_from(now);
                        granted.retain(|grant| match &grant.scope {
                            GrantScope::Skill(skill) => {
                                !now.iter().any(|now| now.name == skill.name && now.digest != skill.digest)
                            }
                            _ => true,
                        });
                    }
                    EventKind::ApprovalDecided { decision: Decision::Grant { grant }, .. }
                        if !granted.contains(grant) =>
                    {
                        granted.push(grant.clone());
                    }
                    _ => {}
                }
                apply(&mut state, &event);
                if matches!(event.kind, EventKind::BlockReplaced { .. } | EventKind::Compacted { .. }) {
                    request.clear();
                }
                if let EventKind::CompactionStarted { kept, .. } = &event.kind {
                    messages_before = state.messages().to_vec();
                    prop_assert!(*kept >= 1 && *kept + 3 <= messages_before.len());
                }
                if let EventKind::Compacted { kept, .. } = &event.kind {
                    let stays = &messages_before[messages_before.len() - kept..];
                    prop_assert_eq!(state.messages().len(), kept + 1);
                    // What stays is what was there, but for what the user added meanwhile at its end.
                    for (before, now) in stays.iter().zip(&state.messages()[1..]) {
                        prop_assert_eq!(before.role, now.role);
                        prop_assert!(now.content.starts_with(&before.content));
                    }
                    prop_assert_eq!(pairing::check(state.messages()), Ok(()), "{:#?}", state.messages());
                }
                record.push(event);
            }
            let queue: Vec<QueueId> = state.queue().map(|queued| queued.id).collect();
            prop_assert_eq!(&queue, &waiting);
            prop_assert!(queue.len() <= QUEUE_LIMIT);
            prop_assert_eq!(state.view().active_skills(), &active);
            let holds = |grant: &&Grant| match &grant.scope {
                GrantScope::Skill(skill) => active.contains(skill),
                _ => true,
            };
            prop_assert!(state.view().grants().eq(granted.iter().filter(holds)));
            match next(&state) {
                Step::AwaitAction => prop_assert!(!state.pending_actions().is_empty()),
                Step::CallModel => {
                    prop_assert_eq!(pairing::check(state.messages()), Ok(()), "{:#?}", state.messages());
                    let now = flat(&state);
                    let continues = now.starts_with(&request) || now.starts_with(&settled(&request));
                    prop_assert!(continues, "{:?} does not continue {:?}", now, request);
                    request = now;
                }
                Step::Idle => prop_assert_eq!(pairing::check_history(state.messages()), Ok(())),
                _ => {}
            }
        }
        prop_assert_eq!(&replay(&record), &state);
        check_projection(&record)?;

        // Whatever was under way: after a crash and an interruption the next turn can begin.
        let interrupt = CommandKind::Interrupt { cause: InterruptCause::Cancelled };
        let input = vec![Block::text("again")];
        let start = CommandKind::StartTurn { input, limits: Limits::default() };
        for (place, kind) in [CommandKind::Recover, interrupt, start].into_iter().enumerate() {
            if place == 1 && let Some(effects) = under_way {
                let expected = match effects { SideEffects::None => Step::CallModel, SideEffects::Possible => Step::Idle };
                prop_assert_eq!(next(&state), expected, "a call under way whose effects are {:?}", effects);
            }
            for event in decide(&state, Command { at: Timestamp::default(), kind }).unwrap_or_default() {
                apply(&mut state, &event);
            }
        }
        prop_assert_eq!(next(&state), Step::CallModel);
        prop_assert_eq!(pairing::check(state.messages()), Ok(()));
    }
}
