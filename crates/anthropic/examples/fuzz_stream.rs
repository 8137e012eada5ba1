//! A fuzz campaign over the stream's way in: bytes to events to an answer.
//!
//! `cargo run --release -p conjure-anthropic --example fuzz_stream -- CASES [SEED]`
//!
//! Each case is a stream of events of all kinds, many of them broken, then damaged byte by byte, then cut into
//! pieces. It must not panic; pieces and the whole must give the same; each block must be JSON that can go back, each
//! call's input an object; nothing may be shown twice or after the end. A failure names its seed.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people, which fails loudly")]

use conjure_anthropic::{MessageAccumulator, SseParser, StreamError};
use conjure_conversation::{Block, BlockKind, ModelEvent, Response};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

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
const ENDS: [&str; 3] = ["\n\n", "\r\n\r\n", "\r\r"];
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
    let mut add = |random: &mut Random, data: &str| {
        let field = random.pick(&["data: ", "data:", "event: x\ndata: ", ": c\ndata: ", "\ndata: "]);
        bytes.extend_from_slice(format!("{field}{data}{}", random.pick(&ENDS)).as_bytes());
    };
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
    if random.below(3) == 0 && !bytes.is_empty() {
        for _ in 0..=random.below(4) {
            let place = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[place] = random.next().to_le_bytes()[0],
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, random.pick(&["\n", "\r", "\"", "{", "}", ":"]).as_bytes()[0]),
                _ => bytes.truncate(place),
            }
            if bytes.is_empty() {
                break;
            }
        }
    }
    bytes
}

type Outcome = (Vec<ModelEvent>, Result<Option<Response>, StreamError>);

fn read(pieces: &mut dyn Iterator<Item = &[u8]>) -> Outcome {
    let (mut parser, mut accumulator, mut shown) =
        (SseParser::new(4096), MessageAccumulator::new(), Vec::new());
    for piece in pieces {
        let pushed = parser.push(piece, |event| -> Result<(), StreamError> {
            accumulator.push(event, |event| shown.push(event))
        });
        if let Err(error) = pushed {
            return (shown, Err(error));
        }
    }
    (shown, accumulator.finish().map(|answer| answer.map(|answer| answer.response)))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cases: u64 = arguments.next().map_or(100_000, |text| text.parse().unwrap());
    let seed: u64 = arguments.next().map_or(1, |text| text.parse().unwrap());
    let (mut answers, mut cut, mut errors, mut calls, mut invalid) = (0u64, 0u64, 0u64, 0u64, 0u64);
    for case in 0..cases {
        let mut random = Random(seed.wrapping_mul(1 << 40).wrapping_add(case));
        let bytes = stream(&mut random);
        let whole = read(&mut std::iter::once(bytes.as_slice()));
        let size = 1 + random.below(40);
        let split = read(&mut bytes.chunks(size));
        assert!(whole == split, "case {case} of seed {seed}: {whole:?} or {split:?}");
        let shown: Vec<_> =
            whole.0.iter().filter(|event| !matches!(event, ModelEvent::UsageReported(_))).collect();
        let started = shown.iter().filter(|event| ***event == ModelEvent::Started).count();
        assert!(started <= 1 && (shown.is_empty() || *shown[0] == ModelEvent::Started), "case {case}");
        match whole.1 {
            Ok(Some(response)) => {
                answers += 1;
                for block in &response.content {
                    assert!(Block::from_json(block.json()).is_ok(), "case {case} of seed {seed}: {block:?}");
                    if let BlockKind::ToolUse(call) = block.kind() {
                        assert!(call.input_value().is_object(), "case {case} of seed {seed}: {block:?}");
                        calls += 1;
                        invalid += u64::from(call.invalid_input().is_some());
                    }
                }
            }
            Ok(None) => cut += 1,
            Err(_) => errors += 1,
        }
    }
    println!(
        "{cases} cases of seed {seed}: {answers} answers ({calls} calls, {invalid} of them with invalid input), \
         {cut} cut short, {errors} errors; no panic, no difference"
    );
}
