//! What the campaigns over streams of events share: bytes of events, and what holds for every answer that is read from them.

use conjure_conversation::{Block, BlockKind, ModelEvent, Response};
use conjure_model_http::{Decoder, SseParser, StreamError};

use crate::campaign::Random;

const FIELDS: [&str; 5] = ["data: ", "data:", "event: x\ndata: ", ": c\ndata: ", "\ndata: "];
const ENDS: [&str; 3] = ["\n\n", "\r\n\r\n", "\r\r"];

/// Adds an event with this data, written in one of the ways that there are.
pub(crate) fn add_event(random: &mut Random, bytes: &mut Vec<u8>, data: &str) {
    let (field, end) = (random.pick(&FIELDS), random.pick(&ENDS));
    bytes.extend_from_slice(format!("{field}{data}{end}").as_bytes());
}

type Outcome = (Vec<ModelEvent>, Result<Option<Response>, StreamError>);

fn read<D: Decoder>(
    mut decoder: D,
    response: fn(D::Answer) -> Response,
    chunks: &mut dyn Iterator<Item = &[u8]>,
) -> Outcome {
    let (mut parser, mut shown) = (SseParser::new(4096), Vec::new());
    for chunk in chunks {
        if let Err(error) = parser.push(chunk, |event| decoder.push(event, &mut |event| shown.push(event))) {
            return (shown, Err(error));
        }
    }
    (shown, decoder.finish().map(|answer| answer.map(response)))
}

/// Damages some streams, and reads each as a whole and in chunks. Both give the same; nothing is shown before `Started`; each block is JSON
/// that can go back, and each call's input an object. `check` has what else holds for an answer and the events before it.
pub(crate) fn play<D: Decoder>(
    random: &mut Random,
    mut bytes: Vec<u8>,
    decoder: impl Fn() -> D,
    response: fn(D::Answer) -> Response,
    check: impl FnOnce(&[ModelEvent], &Response),
) -> &'static str {
    if random.below(3) == 0 {
        random.mutate(&mut bytes, 4, &["\n", "\r", "\"", "{", "}", ":"]);
    }
    let whole = read(decoder(), response, &mut std::iter::once(bytes.as_slice()));
    let size = 1 + random.below(40);
    let split = read(decoder(), response, &mut bytes.chunks(size));
    assert!(whole == split, "{whole:?} or {split:?}");
    let (events, result) = whole;
    let shown: Vec<_> =
        events.iter().filter(|event| !matches!(event, ModelEvent::UsageReported(_))).collect();
    let started = shown.iter().filter(|event| ***event == ModelEvent::Started).count();
    assert!(started <= 1 && (shown.is_empty() || *shown[0] == ModelEvent::Started), "{shown:?}");
    let answer = match result {
        Ok(Some(answer)) => answer,
        Ok(None) => return "cut short",
        Err(_) => return "errors",
    };
    check(&events, &answer);
    let mut verdict = "answers";
    for block in &answer.content {
        assert!(Block::from_json(block.json()).is_ok(), "{block:?}");
        if let BlockKind::ToolUse(call) = block.kind() {
            assert!(call.input_value().is_object(), "{block:?}");
            let is_invalid = verdict == "invalid calls" || call.invalid_input().is_some();
            verdict = if is_invalid { "invalid calls" } else { "calls" };
        }
    }
    verdict
}
