//! A fuzz campaign over content blocks, as a model may write them; `examples/campaign` says how to run it.
//!
//! What is a block stays what it was, byte for byte: by itself, within a message, and in the history after an answer of
//! several such blocks. Calls under one id become calls under several with nothing else changed, the history is fit
//! for the service, and the record of it, read again, gives the same state.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../examples/campaign/mod.rs"]
mod campaign;

use std::collections::BTreeSet;

use campaign::Random;
use conjure_base::{Timestamp, TurnId};
use conjure_conversation::{
    Block, BlockKind, CallOutcome, Command, CommandKind, Event, Limits, Message, Response, Role,
    SessionState, SideEffects, StartedCall, StopReason, ToolResult, Usage, apply, decide, pairing,
};

const MOST_MEMORY: u64 = 32 << 20;

const BLOCKS: [&str; 10] = [
    r#"{"type":"tool_use","id":"a","name":"view","input":{"path":"x","view_range":[1,-1]}}"#,
    r#"{"input":{"id":"b","n":1.50,"e":1e400},"name":"bash_tool","id":"a","type":"tool_use","cache_control":{"type":"ephemeral"}}"#,
    r#" {"type" : "tool_use" , "\u0069d" : "\u0061" , "name" : "t" , "input" : { } } "#,
    r#"{"type":"tool_use","id":"a","id":"b","name":"t","input":{"INVALID_JSON":"{\"a"}}"#,
    r#"{"type":"text","text":"hello \ud83e\udd80","citations":[]}"#,
    r#"{"type":"thinking","thinking":"hm","signature":"s"}"#,
    r#"{"type":"redacted_thinking","data":"x"}"#,
    r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"type":"image"}],"is_error":true}"#,
    r#"{"type":"server_tool_use","id":"s","name":"n","input":{}}"#,
    r#"{"type":"poem","lines":[[["deep"]]]}"#,
];

const WORDS: [&str; 22] = [
    "null",
    "1e400",
    "-0",
    "\"\"",
    "{}",
    "[]",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "\"id\":\"a\",",
    "\"type\":\"tool_use\",",
    "\"input\":{},",
    "\"name\":\"t\",",
    "\"INVALID_JSON\":",
    "{\"$serde_json::private::RawValue\":\"{}\"}",
    "\\u0000",
    "\\ud800",
    "\\\"",
    " ",
    "\n",
    "é",
    "\u{2028}",
    ",",
    "a_1",
];

fn main() {
    campaign::run(MOST_MEMORY, &mut [("blocks", &mut blocks)]);
}

fn blocks(random: &mut Random) -> &'static str {
    let mut content = Vec::new();
    for _ in 0..=random.below(3) {
        let mut json = random.pick(&BLOCKS).as_bytes().to_vec();
        random.mutate(&mut json, 3, &WORDS);
        if random.below(2000) == 0 {
            let depth = random.below(3000);
            json =
                format!(r#"{{"type":"poem","a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth)).into_bytes();
        }
        content.extend(block(&String::from_utf8_lossy(&json)));
    }
    if content.is_empty() {
        return "no block";
    }
    answer(content)
}

/// Reads a block and checks that it stays what it is.
fn block(json: &str) -> Option<Block> {
    let block = match Block::from_json(json) {
        Ok(block) => block,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    assert_eq!(block.json(), json.trim_matches([' ', '\n', '\r', '\t']), "kept as it came");
    let message = Message::assistant(vec![block.clone()]);
    let line = serde_json::to_string(&message).unwrap();
    assert!(line.contains(block.json()), "{line}");
    let read: Message = serde_json::from_str(&line).unwrap();
    assert!(read == message && read.content[0].kind() == block.kind(), "{line}");
    if let BlockKind::ToolUse(call) = block.kind() {
        assert!(json.contains(call.input.get()));
        let value = call.input_value();
        assert!(call.invalid_input().is_none_or(|written| value["INVALID_JSON"] == written), "{json}");
    }
    Some(block)
}

/// The blocks as a model's answer, its calls answered.
fn answer(content: Vec<Block>) -> &'static str {
    let (mut state, mut record) = (SessionState::default(), Vec::new());
    let mut act = |state: &mut SessionState, kind: CommandKind| {
        for event in decide(state, Command { at: Timestamp::default(), kind }).unwrap() {
            apply(state, &event);
            record.push(event);
        }
    };
    let limits = Limits::default();
    act(&mut state, CommandKind::StartTurn { input: vec![Block::text("go")], limits });
    act(&mut state, CommandKind::StartModelCall { effects: SideEffects::None });
    let said = content.clone();
    let has_calls = content.iter().any(|block| block.tool_call().is_some());
    let stop_reason = if has_calls { StopReason::ToolUse } else { StopReason::EndTurn };
    let usage = Usage::default();
    let response = Box::new(Response {
        id: None,
        model: None,
        content,
        stop_reason,
        usage,
        request_id: None,
        container: None,
        native: None,
    });
    act(&mut state, CommandKind::AcceptResponse { turn: TurnId::FIRST, call: 1, response });

    let open: Vec<_> = state.open_calls().iter().map(|open| open.call.clone()).collect();
    let ids: BTreeSet<_> = open.iter().map(|call| call.id.as_str().to_owned()).collect();
    assert_eq!(ids.len(), open.len(), "two calls under one id");
    let calls: Vec<_> = said.iter().filter_map(Block::tool_call).collect();
    let kept: Vec<&Block> = state
        .messages()
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .flat_map(|message| &message.content)
        .filter(|block| block.tool_call().is_some())
        .collect();
    assert!(open.len() == calls.len() && kept.len() == calls.len());
    let blocks = said.iter().filter(|block| block.tool_call().is_some());
    for ((block, said), open) in kept.into_iter().zip(blocks).zip(&open) {
        let (call, before) = (block.tool_call().unwrap(), said.tool_call().unwrap());
        assert!(call == open && call.name == before.name && call.input.get() == before.input.get());
        let again = Block::from_json(block.json()).unwrap();
        assert!(again.tool_call() == Some(call), "{block:?}");
        if call.id == before.id {
            assert_eq!(block, said);
        }
    }
    let calls = open.iter().map(|call| StartedCall { call: call.id.clone(), idempotent: true }).collect();
    act(&mut state, CommandKind::StartTools { calls });
    for call in &open {
        let result = ToolResult::text_result(&call.id, " ");
        act(&mut state, CommandKind::FinishTool { result, outcome: CallOutcome::Finished });
    }
    if has_calls {
        assert_eq!(pairing::check(state.messages()), Ok(()));
    } else {
        assert_eq!(pairing::check_history(state.messages()), Ok(()));
    }
    assert!(replayed(&record) == state, "the record gives another state");
    if has_calls { "calls" } else { "words" }
}

fn replayed(record: &[Event]) -> SessionState {
    let mut state = SessionState::default();
    for event in record {
        let line = serde_json::to_string(event).unwrap();
        apply(&mut state, &serde_json::from_str(&line).unwrap());
    }
    state
}
