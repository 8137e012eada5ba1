//! A fuzz campaign over the streams' way in: bytes to events to an answer, for both APIs; `examples/campaign` says how to run it.
//!
//! Each case is a stream of events of all kinds, many of them broken, then damaged byte by byte, then cut into chunks;
//! `examples/campaign/streams.rs` says what must hold. Besides, no text is empty, and each native item is one JSON object whose arguments are
//! JSON.
#![expect(
    clippy::print_stdout,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../examples/campaign/mod.rs"]
mod campaign;
#[path = "../../../examples/campaign/streams.rs"]
mod streams;

use std::convert::identity;

use campaign::Random;
use conjure_conversation::{BlockKind, ModelApi, Origin, Response};
use conjure_openai::{ChatDecoder, ResponsesDecoder};
use serde_json::{Map, Value};
use streams::{add_event, play};

const MOST_MEMORY: u64 = 64 << 20;

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
    let mut add = |random: &mut Random, data: &str| add_event(random, &mut bytes, data);
    for _ in 0..random.below(10) {
        let event = event(random);
        add(random, &event);
    }
    if random.below(5) > 0 {
        for data in last {
            add(random, data);
        }
    }
    bytes
}

/// The arguments of the calls in a native item.
fn arguments(item: &Value) -> Vec<&Value> {
    let calls = item["tool_calls"].as_array().into_iter().flatten();
    let of_chat = calls.map(|call| &call["function"]["arguments"]);
    of_chat.chain((item["type"] == "function_call").then_some(&item["arguments"])).collect()
}

fn check(response: &Response) {
    for block in &response.content {
        if let BlockKind::Text(text) = block.kind() {
            assert!(!text.trim().is_empty(), "{response:?}");
        }
    }
    for item in &response.native.as_ref().unwrap().items {
        assert!(item.json().starts_with('{') && item.json().ends_with('}'), "{item:?}");
        // Half a character, or a number that no Rust type can hold, is kept as it came.
        let Ok(fields) = serde_json::from_str::<Value>(item.json()) else { continue };
        for arguments in arguments(&fields) {
            let parsed: Result<Map<String, Value>, _> = serde_json::from_str(arguments.as_str().unwrap());
            assert!(parsed.is_ok(), "{item:?}");
        }
    }
}

fn main() {
    let origin = |api| Origin { api, service: "s".to_owned(), model: "m".to_owned() };
    let mut chat = |random: &mut Random| {
        let last = [r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, "[DONE]"];
        let bytes = stream(random, chat_event, &last);
        play(random, bytes, || ChatDecoder::new(origin(ModelApi::Chat)), identity, |_, answer| check(answer))
    };
    let mut responses = |random: &mut Random| {
        let last = [r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#];
        let bytes = stream(random, responses_event, &last);
        let decoder = || ResponsesDecoder::new(origin(ModelApi::Responses));
        play(random, bytes, decoder, identity, |_, answer| check(answer))
    };
    campaign::run(MOST_MEMORY, &mut [("chat", &mut chat), ("responses", &mut responses)]);
}
