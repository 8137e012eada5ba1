//! A fuzz campaign over the stream's way in: bytes to events to an answer; `examples/campaign` says how to run it.
//!
//! Each case is a stream of pieces of all kinds, many of them broken, then damaged byte by byte, then cut into chunks; `examples/campaign/streams.rs`
//! says what must hold. Besides, what was shown of a block is the block, and each native item is one JSON object.
#![expect(
    clippy::print_stdout,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../examples/campaign/mod.rs"]
mod campaign;
#[path = "../../../examples/campaign/streams.rs"]
mod streams;

use std::convert::identity;

use campaign::Random;
use conjure_conversation::{BlockKind, ModelApi, ModelEvent, Origin, Response};
use conjure_gemini::GeminiDecoder;
use streams::{add_event, play};

const MOST_MEMORY: u64 = 64 << 20;

const TEXTS: [&str; 13] =
    ["", "a", " ", "\\n", "é🦀", "\\u00e9", "\\ud83e\\udd80", "{", "\\\"", "b c", "\\t", "0", "\\/"];
const ARGS: [&str; 8] = ["{}", "{\"a\":1.50}", "null", "[1]", "\"x\"", "{\"a\":{\"b\":[]}}", "1e999", "{ }"];
/// The first three are what a flag may have.
const VALUES: [&str; 8] = ["null", "true", "false", "3", "\"x\"", "{}", "[]", "\"AAA=\""];
const REASONS: [&str; 8] =
    ["\"STOP\"", "\"STOP\"", "\"MAX_TOKENS\"", "\"SAFETY\"", "\"CONTINUATION\"", "\"soon\"", "null", "\"\""];
const MEMBERS: [&str; 9] = [
    "candidates",
    "content",
    "parts",
    "text",
    "thought",
    "thoughtSignature",
    "functionCall",
    "finishReason",
    "usageMetadata",
];

fn part(random: &mut Random) -> String {
    let text: String = (0..random.below(3)).map(|_| random.pick(&TEXTS)).collect();
    match random.below(400) {
        0..=149 => format!(r#"{{"text":"{text}"}}"#),
        150..=209 => format!(r#"{{"thought":true,"text":"{text}"}}"#),
        210..=249 => format!(r#"{{"text":"{text}","thoughtSignature":"AAA="}}"#),
        250..=299 => format!(r#"{{"functionCall":{{"name":"t","args":{}}}}}"#, random.pick(&ARGS)),
        300..=329 => {
            let args = random.pick(&ARGS);
            format!(
                r#"{{"functionCall":{{"id":"i","name":"t{text}","args":{args}}},"thoughtSignature":"BBB="}}"#
            )
        }
        330..=339 => r#"{"executableCode":{"code":"1"}}"#.to_owned(),
        340..=349 => "{}".to_owned(),
        350 => format!(r#"{{"text":{}}}"#, random.pick(&VALUES)),
        351 => format!(r#"{{"{}":{}}}"#, random.pick(&MEMBERS), random.pick(&VALUES)),
        352 => random.pick(&VALUES).to_owned(),
        _ => format!(r#"{{"text":"{text}","thought":{}}}"#, random.pick(&VALUES[..3])),
    }
}

fn piece(random: &mut Random, finish: Option<&str>) -> String {
    let parts: Vec<String> = (0..random.below(4)).map(|_| part(random)).collect();
    let finish = finish.map(|reason| format!(r#","finishReason":{reason}"#)).unwrap_or_default();
    let token = if random.below(20) == 0 { r#","continuationToken":"dG9r""# } else { "" };
    match random.below(400) {
        0 => r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#.to_owned(),
        1 => r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#.to_owned(),
        2 => format!(r#"{{"{}":{}}}"#, random.pick(&MEMBERS), random.pick(&VALUES)),
        3 => random.pick(&VALUES).to_owned(),
        4 => "[DONE]".to_owned(),
        5 => format!(r#"{{"candidates":[{{"finishReason":{}}}]}}"#, random.pick(&REASONS)),
        _ => format!(
            r#"{{"candidates":[{{"content":{{"parts":[{}]}}{finish}{token},"index":0}}],"usageMetadata":{{"promptTokenCount":{},"thoughtsTokenCount":1}},"responseId":"r"}}"#,
            parts.join(","),
            random.below(9)
        ),
    }
}

fn stream(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |random: &mut Random, data: &str| add_event(random, &mut bytes, data);
    for _ in 0..random.below(8) {
        let piece = piece(random, None);
        add(random, &piece);
    }
    if random.below(5) > 0 {
        let reason = random.pick(&REASONS);
        let piece = piece(random, Some(reason));
        add(random, &piece);
    }
    bytes
}

/// The previews of each block, joined, are the blocks.
fn is_what_was_shown(shown: &[ModelEvent], response: &Response) -> bool {
    let mut texts: Vec<String> = Vec::new();
    for event in shown {
        let (index, text) = match event {
            ModelEvent::TextDelta { index, text } | ModelEvent::ThinkingDelta { index, text } => {
                (index, text)
            }
            ModelEvent::ToolInputDelta { index, partial_json } => (index, partial_json),
            _ => continue,
        };
        texts.resize(texts.len().max(index + 1), String::new());
        texts[*index].push_str(text);
    }
    texts.iter().zip(&response.content).all(|(text, block)| match block.kind() {
        BlockKind::Text(whole) | BlockKind::Thinking(whole) => whole == text,
        BlockKind::ToolUse(call) => call.input.get() == text,
        _ => false,
    })
}

fn main() {
    let origin = Origin { api: ModelApi::Gemini, service: "s".to_owned(), model: "m".to_owned() };
    let mut answers = |random: &mut Random| {
        let bytes = stream(random);
        play(
            random,
            bytes,
            || GeminiDecoder::new(origin.clone()),
            identity,
            |shown, response| {
                assert!(is_what_was_shown(shown, response), "{shown:?} and {response:?}");
                for item in response.native.iter().flat_map(|native| &native.items) {
                    assert!(item.json().trim_start().starts_with('{'), "{item:?}");
                }
            },
        )
    };
    campaign::run(MOST_MEMORY, &mut [("answers", &mut answers)]);
}
