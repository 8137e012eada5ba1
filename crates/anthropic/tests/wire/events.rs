//! Streams of events, written by hand.

use serde_json::{Value, json};

/// The events as a stream.
pub(crate) fn sse(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

pub(crate) fn start() -> Value {
    json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 5,
                  "cache_read_input_tokens": 7}}})
}

pub(crate) fn ping() -> Value {
    json!({"type": "ping"})
}

pub(crate) fn block(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

pub(crate) fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

pub(crate) fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

pub(crate) fn text_delta(index: usize, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

pub(crate) fn input_delta(index: usize, json: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

/// The end of a message: its stop reason and `message_stop`.
pub(crate) fn end(stop_reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null},
               "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]
}

/// A whole message of these blocks' events.
pub(crate) fn message(events: Vec<Value>, stop_reason: &str) -> String {
    let mut all = vec![start()];
    all.extend(events);
    all.extend(end(stop_reason));
    sse(&all)
}

/// A complete response with this text.
pub(crate) fn text_stream(text: &str) -> String {
    message(
        vec![block(0, json!({"type": "text", "text": ""})), ping(), text_delta(0, text), stop(0)],
        "end_turn",
    )
}
