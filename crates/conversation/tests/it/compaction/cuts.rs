//! Where a history may be cut, and what of the state follows a cut.

use conjure_base::TurnId;
use conjure_conversation::{
    ApiErrorKind, Block, CallOutcome, CommandKind, CompactionPolicy, Event, Message, ModelError,
    ModelErrorKind, Rejection, Response, SessionState, StartedCall, StopReason, Summary, ToolResult, Usage,
    pairing,
};

use crate::support::{accept_response, answer, outline, start, start_call, submit, tool_use};

const POLICY: CompactionPolicy = CompactionPolicy::with_threshold(100).with_kept_messages(1);

/// An answer of the model's, whose request was as long as makes a compaction due.
fn hear(state: &mut SessionState, response: Response) {
    submit(state, start_call()).unwrap();
    let usage = Usage { input_tokens: 100, ..Usage::default() };
    submit(state, accept_response(state, Response { usage, ..response })).unwrap();
}

fn compact(state: &mut SessionState, words: &str) -> Result<Vec<Event>, Rejection> {
    submit(state, CommandKind::StartCompaction { policy: POLICY })?;
    let (turn, compaction) = state.turn().map(|turn| (turn.id(), turn.compactions())).unwrap();
    let summary = Summary { text: words.to_owned(), ..Summary::default() };
    submit(state, CommandKind::Compact { turn, compaction, summary, preserved: None })
}

/// Turns of one question and one answer each; a long one, so that a summary is worth it.
fn talked(turns: usize) -> SessionState {
    let mut state = SessionState::default();
    for turn in 0..turns {
        submit(&mut state, start(&format!("question {turn} {}", "x".repeat(400)))).unwrap();
        hear(&mut state, answer(vec![Block::text(format!("answer {turn}"))], StopReason::EndTurn));
    }
    state
}

fn block(json: &str) -> Block {
    Block::from_json(json).unwrap()
}

/// The answer in a turn of its own, and how much would stay then.
fn kept_after(answers: Vec<Vec<Block>>) -> Option<usize> {
    let mut state = talked(1);
    submit(&mut state, start("look")).unwrap();
    for content in answers {
        hear(&mut state, answer(content, StopReason::PauseTurn));
        for open in state.open_calls().to_vec() {
            let (call, idempotent) = (open.call.id, false);
            let result = ToolResult::text_result(&call, "so");
            let calls = vec![StartedCall { call, idempotent }];
            submit(&mut state, CommandKind::StartTools { calls }).unwrap();
            submit(&mut state, CommandKind::FinishTool { result, outcome: CallOutcome::Finished }).unwrap();
        }
    }
    state.compaction_due(&POLICY)
}

#[test]
fn what_stays_begins_with_an_answer() {
    for (turns, keep, expected) in [
        (2, 1, None),
        (3, 1, Some(2)),
        (3, 2, Some(2)),
        (3, 3, None),
        (4, 1, Some(2)),
        (4, 3, Some(4)),
        (9, 6, Some(6)),
    ] {
        let mut state = talked(turns - 1);
        assert_eq!(state.compaction_due(&POLICY), None, "no turn runs");
        submit(&mut state, start("last")).unwrap();
        // Messages: an odd number, of which the last is the question.
        assert_eq!(state.messages().len(), 2 * turns - 1);
        assert_eq!(state.compaction_due(&POLICY.with_kept_messages(keep)), expected, "{turns} {keep}");
    }
    let mut state = talked(8);
    submit(&mut state, start("last")).unwrap();
    compact(&mut state, "in short").unwrap();
    let history = outline(state.messages());
    insta::assert_snapshot!("what_a_model_reads_in_place", history[0]);
    assert_eq!(history[1..], ["assistant: answer 7", "user: last"]);
    assert_eq!(pairing::check(state.messages()), Ok(()));
    assert_eq!(compact(&mut state, "again"), Err(Rejection::CompactionNotDue));
}

#[test]
fn a_call_stays_with_its_result_also_where_the_services_tools_answer_later() {
    let hosted = r#"{"type":"server_tool_use","id":"srv_1","name":"code_execution","input":{}}"#;
    let result = r#"{"type":"code_execution_tool_result","tool_use_id":"srv_1","content":{}}"#;
    let called = || vec![block(hosted), tool_use("bash", "a")];
    let called_again = || vec![tool_use("bash", "b")];
    // 0 question, 1 answer, 2 look, 3 the call of the service's, 4 results, 5 …
    assert_eq!(kept_after(vec![called()]), Some(2));
    assert_eq!(kept_after(vec![called(), called_again()]), Some(4));
    let ended = || vec![block(result), Block::text("so"), tool_use("bash", "c")];
    assert_eq!(kept_after(vec![called(), called_again(), ended()]), Some(6));
    let on = || vec![tool_use("bash", "d")];
    assert_eq!(kept_after(vec![called(), called_again(), ended(), on()]), Some(2));
    // Without the service's tools nothing keeps them together.
    assert_eq!(kept_after(vec![called_again(), on()]), Some(2));
}

#[test]
fn a_paused_answer_stays_whole() {
    let mut state = talked(3);
    submit(&mut state, start("look")).unwrap();
    for word in ["one", "two"] {
        hear(&mut state, answer(vec![Block::text(word)], StopReason::PauseTurn));
    }
    compact(&mut state, "in short").unwrap();
    assert_eq!(outline(state.messages())[1..], ["assistant: one | two"]);
    hear(&mut state, answer(vec![Block::text("three")], StopReason::EndTurn));
    assert_eq!(outline(state.messages())[1..], ["assistant: one | two | three"]);
}

#[test]
fn ids_of_calls_that_are_gone_stay_taken() {
    let mut state = SessionState::default();
    for turn in 0..4 {
        submit(&mut state, start(&format!("{turn} {}", "x".repeat(400)))).unwrap();
        hear(&mut state, answer(vec![tool_use("bash", "a")], StopReason::EndTurn));
    }
    submit(&mut state, start("last")).unwrap();
    compact(&mut state, "in short").unwrap();
    hear(&mut state, answer(vec![tool_use("bash", "a")], StopReason::ToolUse));
    assert_eq!(state.open_calls()[0].call.id.as_str(), "a_4");
}

#[test]
fn a_block_that_was_replaced_is_known_where_it_stands_now() {
    let mut state = talked(4);
    submit(&mut state, start("last")).unwrap();
    let reject = |state: &mut SessionState, message: usize| {
        submit(state, start_call()).unwrap();
        let (turn, call) = state.turn().map(|turn| (turn.id(), turn.model_calls())).unwrap();
        let error = ModelError::new(ModelErrorKind::Api(ApiErrorKind::InvalidRequest), "no");
        let rejected =
            submit(state, CommandKind::RejectBlock { turn, call, error: error.clone(), message, block: 0 });
        if rejected.is_err() {
            submit(state, CommandKind::Recover).unwrap();
        }
        rejected
    };
    for message in [1, 7] {
        reject(&mut state, message).unwrap();
    }
    compact(&mut state, "in short").unwrap();
    assert_eq!(state.messages().len(), 3);
    assert_eq!(reject(&mut state, 1), Err(Rejection::NotReplaceable { message: 1, block: 0 }));
    // What became of the first one is a summary, which was not replaced.
    reject(&mut state, 0).unwrap();
}

#[test]
fn what_comes_late_changes_nothing() {
    let mut state = talked(4);
    let late = |state: &mut SessionState, compaction: u32| {
        let summary = Summary { text: "late".to_owned(), ..Summary::default() };
        let turn = state.turn().map_or(TurnId::FIRST, |turn| turn.id());
        submit(state, CommandKind::Compact { turn, compaction, summary, preserved: None })
    };
    assert_eq!(late(&mut state, 0), Err(Rejection::NoTurn));
    submit(&mut state, start("last")).unwrap();
    assert_eq!(late(&mut state, 0), Err(Rejection::StaleModelCall));
    submit(&mut state, CommandKind::StartCompaction { policy: POLICY }).unwrap();
    assert_eq!(late(&mut state, 2), Err(Rejection::StaleModelCall));
    submit(&mut state, CommandKind::Recover).unwrap();
    assert_eq!(late(&mut state, 1), Err(Rejection::StaleModelCall));
    assert_eq!(state.messages().len(), 9);
    // It is due again, and is another one.
    compact(&mut state, "in short").unwrap();
    assert_eq!(state.turn().unwrap().compactions(), 2);
    let whole: Vec<&Message> = state.messages().iter().map(|message| &**message).collect();
    assert_eq!(pairing::check(&whole), Ok(()));
}
