//! A fuzz campaign over the streams' way in: bytes to events to an answer, for both APIs.
//!
//! `cargo run --release -p conjure-openai --example fuzz_stream -- CASES [SEED]`
//!
//! Each case is a stream of events of all kinds, many of them broken, then damaged byte by byte, then cut into chunks. It must not panic;
//! chunks and the whole must give the same; each block must be JSON that can go back, each call's input an object, each native item one
//! JSON object whose arguments are JSON; nothing may be shown before `Started`. A failure names its seed.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people, which fails loudly")]

use conjure_conversation::{Block, BlockKind, ModelApi, ModelEvent, Origin, Response};
use conjure_model_http::{Decoder, SseParser, StreamError};
use conjure_openai::{ChatDecoder, ResponsesDecoder};
use serde_json::{Map, Value};

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

/// Any value of a member.
const VALUES: [&str; 22] = [
    "null",
    "true",
    "0",
    "1",
    "-1",
    "1e999",
    "\"\"",
    "\"a\"",
    "\" \"",
    "\"\\n\"",
    "\"é🦀\\ud83e\\udd80\"",
    "\"{\"",
    "\"{\\\"a\\\":1.50}\"",
    "\"}\"",
    "[]",
    "[1]",
    "{}",
    "[{\"type\":\"text\",\"text\":\"x\"}]",
    "[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"h\"}]}]",
    "[{\"type\":\"reasoning.text\",\"text\":\"a\",\"index\":0},{\"type\":\"reasoning.text\",\"text\":\"b\",\"index\":0}]",
    "{\"x\":{\"y\":[1,2]}}",
    "\"[DONE]\"",
];
const ENDS: [&str; 3] = ["\n\n", "\r\n\r\n", "\r\r"];
const REASONS: [&str; 9] = [
    "\"stop\"",
    "\"tool_calls\"",
    "\"length\"",
    "\"content_filter\"",
    "\"error\"",
    "\"soon\"",
    "\"\"",
    "null",
    "7",
];
const MEMBERS: [&str; 8] =
    ["role", "content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "x", "tool_calls"];
const ITEMS: [&str; 5] = ["reasoning", "message", "function_call", "web_search_call", ""];
const DELTAS: [&str; 6] = [
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
];
const STATUSES: [&str; 6] = ["completed", "incomplete", "failed", "cancelled", "queued", ""];

/// Mostly a text, sometimes anything.
fn text(random: &mut Random) -> &'static str {
    if random.below(4) == 0 { random.pick(&VALUES) } else { random.pick(&VALUES[6..14]) }
}

fn chat_event(random: &mut Random) -> String {
    let delta = match random.below(3) {
        0 => {
            let index = random.pick(&["\"index\":0,", "\"index\":1,", "\"index\":\"x\",", ""]);
            let id = random.pick(&["\"id\":\"a\",", "\"id\":\"b\",", "\"id\":null,", ""]);
            let name = random.pick(&["\"name\":\"t\",", "\"name\":\"u\",", "\"name\":\"\",", ""]);
            let arguments = text(random);
            format!(
                r#""tool_calls":[{{{index}{id}"more":{},"function":{{{name}"arguments":{arguments}}}}}]"#,
                random.pick(&VALUES)
            )
        }
        _ => format!(r#""{}":{}"#, random.pick(&MEMBERS), text(random)),
    };
    match random.below(40) {
        0 => random.pick(&VALUES).to_owned(),
        1 => format!(r#"{{"error":{}}}"#, random.pick(&VALUES)),
        2 => format!(r#"{{"choices":{},"usage":{}}}"#, random.pick(&VALUES), random.pick(&VALUES)),
        3 => r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#.to_owned(),
        4 | 5 => format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":{}}}]}}"#, random.pick(&REASONS)),
        6 => "[DONE]".to_owned(),
        _ => format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{{{delta}}}}}]}}"#),
    }
}

fn responses_event(random: &mut Random) -> String {
    let id = random.below(3);
    let item = format!(
        r#"{{"id":"i{id}","type":"{}","call_id":{},"name":"t","arguments":{},"summary":{},"content":{}}}"#,
        random.pick(&ITEMS),
        text(random),
        text(random),
        random.pick(&VALUES),
        random.pick(&VALUES)
    );
    let place = match random.below(4) {
        0 => String::new(),
        1 => format!(r#""output_index":{id},"#),
        2 => format!(r#""item_id":"i{id}","#),
        _ => format!(r#""item_id":"i{id}","output_index":{id},"#),
    };
    match random.below(20) {
        0 => random.pick(&VALUES).to_owned(),
        1 => format!(r#"{{"type":"error","message":{}}}"#, random.pick(&VALUES)),
        2 => {
            let status = random.pick(&STATUSES);
            let kind = random.pick(&["response.completed", "response.incomplete", "response.created"]);
            format!(
                r#"{{"type":"{kind}","response":{{"status":"{status}","output":[{item}],"incomplete_details":{},"usage":{}}}}}"#,
                random.pick(&["null", "{\"reason\":\"max_output_tokens\"}", "{\"reason\":null}"]),
                random.pick(&["null", "{\"input_tokens\":3,\"output_tokens\":1}"])
            )
        }
        3..=6 => format!(r#"{{"type":"response.output_item.added",{place}"item":{item}}}"#),
        7..=11 => format!(r#"{{"type":"response.output_item.done",{place}"item":{item}}}"#),
        _ => format!(
            r#"{{"type":"{}",{place}"content_index":0,"delta":{},"arguments":{}}}"#,
            random.pick(&DELTAS),
            text(random),
            text(random)
        ),
    }
}

fn stream(random: &mut Random, event: fn(&mut Random) -> String, last: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |random: &mut Random, data: &str| {
        let field = random.pick(&["data: ", "data:", "event: x\ndata: ", ": c\ndata: ", "\ndata: "]);
        bytes.extend_from_slice(format!("{field}{data}{}", random.pick(&ENDS)).as_bytes());
    };
    for _ in 0..random.below(10) {
        let event = event(random);
        add(random, &event);
    }
    if random.below(5) > 0 {
        for data in last {
            add(random, data);
        }
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

fn read<D: Decoder<Answer = Response>>(mut decoder: D, pieces: &mut dyn Iterator<Item = &[u8]>) -> Outcome {
    let (mut parser, mut shown) = (SseParser::new(4096), Vec::new());
    for piece in pieces {
        let pushed = parser.push(piece, |event| -> Result<(), StreamError> {
            decoder.push(event, &mut |event| shown.push(event))
        });
        if let Err(error) = pushed {
            return (shown, Err(error));
        }
    }
    (shown, decoder.finish())
}

/// The arguments of the calls in a native item.
fn arguments(item: &Value) -> Vec<&Value> {
    let calls = item["tool_calls"].as_array().into_iter().flatten();
    let of_chat = calls.map(|call| &call["function"]["arguments"]);
    of_chat.chain((item["type"] == "function_call").then_some(&item["arguments"])).collect()
}

fn main() {
    let mut given = std::env::args().skip(1);
    let cases: u64 = given.next().map_or(100_000, |text| text.parse().unwrap());
    let seed: u64 = given.next().map_or(1, |text| text.parse().unwrap());
    let (mut answers, mut cut, mut errors, mut calls, mut invalid) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let origin = |api| Origin { api, service: "s".to_owned(), model: "m".to_owned() };
    for case in 0..cases {
        let mut random = Random(seed.wrapping_mul(1 << 40).wrapping_add(case));
        let is_chat = case % 2 == 0;
        let bytes = if is_chat {
            let last = [r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, "[DONE]"];
            stream(&mut random, chat_event, &last)
        } else {
            let last = [r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#];
            stream(&mut random, responses_event, &last)
        };
        let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            if is_chat {
                read(ChatDecoder::new(origin(ModelApi::Chat)), pieces)
            } else {
                read(ResponsesDecoder::new(origin(ModelApi::Responses)), pieces)
            }
        };
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
                    match block.kind() {
                        BlockKind::ToolUse(call) => {
                            assert!(call.input_value().is_object(), "case {case} of seed {seed}: {block:?}");
                            calls += 1;
                            invalid += u64::from(call.invalid_input().is_some());
                        }
                        BlockKind::Text(text) => assert!(!text.trim().is_empty(), "case {case}"),
                        _ => {}
                    }
                }
                for item in &response.native.as_ref().unwrap().items {
                    assert!(
                        item.json().starts_with('{') && item.json().ends_with('}'),
                        "case {case}: {item:?}"
                    );
                    // Half a character, or a number that no Rust type can hold, is kept as it came.
                    let Ok(fields) = serde_json::from_str::<Value>(item.json()) else { continue };
                    for arguments in arguments(&fields) {
                        let parsed: Result<Map<String, Value>, _> =
                            serde_json::from_str(arguments.as_str().unwrap());
                        assert!(parsed.is_ok(), "case {case} of seed {seed}: {item:?}");
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
