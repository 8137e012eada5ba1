//! A fuzz campaign over the stream's way in: bytes to events to an answer; `examples/campaign` says how to run it.
//!
//! Each case is a stream of events of all kinds, many of them broken, then damaged byte by byte, then cut into chunks;
//! `examples/campaign/streams.rs` says what must hold.
#![expect(
    clippy::print_stdout,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../examples/campaign/mod.rs"]
mod campaign;
#[path = "../../../examples/campaign/streams.rs"]
mod streams;

use campaign::Random;
use conjure_anthropic::MessageAccumulator;
use streams::{add_event, play};

const MOST_MEMORY: u64 = 64 << 20;

const START: &str =
    r#"{"type":"message_start","message":{"id":"m","model":"x","content":[],"usage":{"input_tokens":3}}}"#;
const KINDS: [&str; 9] = [
    "text",
    "thinking",
    "tool_use",
    "server_tool_use",
    "redacted_thinking",
    "poem",
    "compaction",
    "tool_result",
    "",
];
const DELTAS: [&str; 8] = [
    "text_delta",
    "input_json_delta",
    "thinking_delta",
    "signature_delta",
    "citations_delta",
    "compaction_delta",
    "poem_delta",
    "",
];
const PIECES: [&str; 22] = [
    "",
    "a",
    "{",
    "}",
    "[",
    "]",
    "\\\"",
    ":",
    ",",
    "1",
    "-",
    "1e5",
    "tru",
    "null",
    "\\u00e9",
    "\\ud83d",
    "é🦀",
    "{\\\"a\\\":",
    "\\\"b\\\"",
    " ",
    "\\n",
    "{\\\"a\\\":{\\\"b\\\":[1,2",
];
const REASONS: [&str; 7] =
    ["\"tool_use\"", "\"max_tokens\"", "\"end_turn\"", "\"refusal\"", "\"pause_turn\"", "\"soon\"", "null"];

/// An event that mostly fits what came before: `blocks` were started.
fn event(random: &mut Random, blocks: &mut usize) -> String {
    let is_astray = random.below(60) == 0;
    let known = if is_astray || *blocks == 0 { random.below(3) } else { random.below(*blocks) };
    let mut text = String::new();
    for _ in 0..random.below(3) {
        text.push_str(random.pick(&PIECES));
    }
    match random.below(200) {
        0 => START.to_owned(),
        1..=50 => {
            let kind = random.pick(if is_astray { &KINDS } else { &KINDS[..8] });
            let index = if is_astray { known } else { *blocks };
            *blocks = index + 1;
            format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"{kind}","id":"a","name":"t","text":"","thinking":"","tool_use_id":"a","input":{{}},"n":1.50}}}}"#
            )
        }
        51..=150 if is_astray || *blocks > 0 => {
            let kind = random.pick(&DELTAS);
            let index = known;
            format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","text":"{text}","partial_json":"{text}","thinking":"{text}","signature":"{text}","citation":{{"x":"{text}"}},"content":["{text}"]}}}}"#
            )
        }
        151..=180 if is_astray || *blocks > 0 => {
            format!(r#"{{"type":"content_block_stop","index":{known}}}"#)
        }
        181..=190 => {
            let reason = random.pick(&REASONS);
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":{reason}}},"usage":{{"output_tokens":9}}}}"#
            )
        }
        191 => r#"{"type":"message_stop"}"#.to_owned(),
        192 => r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#.to_owned(),
        193 => text,
        _ => r#"{"type":"ping"}"#.to_owned(),
    }
}

fn stream(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |random: &mut Random, data: &str| add_event(random, &mut bytes, data);
    if random.below(50) > 0 {
        add(random, START);
    }
    let mut blocks = 0;
    for _ in 0..random.below(12) {
        let event = event(random, &mut blocks);
        add(random, &event);
    }
    if random.below(5) > 0 {
        let reason = random.pick(&REASONS);
        add(random, &format!(r#"{{"type":"message_delta","delta":{{"stop_reason":{reason}}}}}"#));
        add(random, r#"{"type":"message_stop"}"#);
    }
    bytes
}

fn main() {
    let mut answers = |random: &mut Random| {
        let bytes = stream(random);
        play(random, bytes, MessageAccumulator::new, |answer| answer.response, |_, _| {})
    };
    campaign::run(MOST_MEMORY, &mut [("answers", &mut answers)]);
}
