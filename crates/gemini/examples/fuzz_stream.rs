//! A fuzz campaign over the stream's way in: bytes to events to an answer.
//!
//! `cargo run --release -p conjure-gemini --example fuzz_stream -- CASES [SEED]`
//!
//! Each case is a stream of pieces of all kinds, many of them broken, then damaged byte by byte, then cut into chunks. It must not panic;
//! chunks and the whole must give the same; each block must be JSON that can go back, each call's input an object, each native item one
//! JSON object; nothing may be shown twice. A failure names its seed.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people, which fails loudly")]

use conjure_conversation::{Block, BlockKind, ModelApi, ModelEvent, Origin, Response};
use conjure_gemini::GeminiDecoder;
use conjure_model_http::{Decoder as _, SseParser, StreamError};

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

const TEXTS: [&str; 13] =
    ["", "a", " ", "\\n", "é🦀", "\\u00e9", "\\ud83e\\udd80", "{", "\\\"", "b c", "\\t", "0", "\\/"];
const ARGS: [&str; 8] = ["{}", "{\"a\":1.50}", "null", "[1]", "\"x\"", "{\"a\":{\"b\":[]}}", "1e999", "{ }"];
/// The first three are what a flag may have.
const VALUES: [&str; 8] = ["null", "true", "false", "3", "\"x\"", "{}", "[]", "\"AAA=\""];
const ENDS: [&str; 3] = ["\n\n", "\r\n\r\n", "\r\r"];
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
    let mut add = |random: &mut Random, data: &str| {
        let field = random.pick(&["data: ", "data:", "event: x\ndata: ", ": c\ndata: ", "\ndata: "]);
        bytes.extend_from_slice(format!("{field}{data}{}", random.pick(&ENDS)).as_bytes());
    };
    for _ in 0..random.below(8) {
        let piece = piece(random, None);
        add(random, &piece);
    }
    if random.below(5) > 0 {
        let reason = random.pick(&REASONS);
        let piece = piece(random, Some(reason));
        add(random, &piece);
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

fn read(origin: &Origin, pieces: &mut dyn Iterator<Item = &[u8]>) -> Outcome {
    let (mut parser, mut decoder, mut shown) =
        (SseParser::new(4096), GeminiDecoder::new(origin.clone()), Vec::new());
    for piece in pieces {
        let pushed = parser.push(piece, |event| decoder.push(event, &mut |event| shown.push(event)));
        if let Err(error) = pushed {
            return (shown, Err(error));
        }
    }
    (shown, decoder.finish())
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
    let mut arguments = std::env::args().skip(1);
    let cases: u64 = arguments.next().map_or(100_000, |text| text.parse().unwrap());
    let seed: u64 = arguments.next().map_or(1, |text| text.parse().unwrap());
    let origin = Origin { api: ModelApi::Gemini, service: "s".to_owned(), model: "m".to_owned() };
    let (mut answers, mut cut, mut errors, mut calls, mut items) = (0u64, 0u64, 0u64, 0u64, 0usize);
    for case in 0..cases {
        let mut random = Random(seed.wrapping_mul(1 << 40).wrapping_add(case));
        let bytes = stream(&mut random);
        let whole = read(&origin, &mut std::iter::once(bytes.as_slice()));
        let size = 1 + random.below(40);
        let split = read(&origin, &mut bytes.chunks(size));
        assert!(whole == split, "case {case} of seed {seed}: {whole:?} or {split:?}");
        let shown: Vec<_> =
            whole.0.iter().filter(|event| !matches!(event, ModelEvent::UsageReported(_))).collect();
        let started = shown.iter().filter(|event| ***event == ModelEvent::Started).count();
        assert!(started <= 1 && (shown.is_empty() || *shown[0] == ModelEvent::Started), "case {case}");
        match &whole.1 {
            Ok(Some(response)) => {
                answers += 1;
                assert!(is_what_was_shown(&whole.0, response), "case {case} of seed {seed}: {whole:?}");
                for block in &response.content {
                    assert!(Block::from_json(block.json()).is_ok(), "case {case} of seed {seed}: {block:?}");
                    if let BlockKind::ToolUse(call) = block.kind() {
                        assert!(call.input_value().is_object(), "case {case} of seed {seed}: {block:?}");
                        calls += 1;
                    }
                }
                for item in response.native.iter().flat_map(|native| &native.items) {
                    assert!(
                        item.json().trim_start().starts_with('{'),
                        "case {case} of seed {seed}: {item:?}"
                    );
                    items += 1;
                }
            }
            Ok(None) => cut += 1,
            Err(_) => errors += 1,
        }
    }
    println!(
        "{cases} cases of seed {seed}: {answers} answers ({calls} calls, {items} parts), {cut} cut short, {errors} \
         errors; no panic, no difference"
    );
}
