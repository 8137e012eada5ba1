//! Writes an answer as Chat Completions does: as chunks, or as one body.

use conjure_conversation::{BlockKind, StopReason, Usage};
use conjure_model_http::fake::Ending;
use serde_json::{Map, Value, json};

use super::answer::{AnswerNames, FakeAnswer};
use super::error::FakeError;
use crate::tool_names::wire_name;

/// The chunks of a streamed answer, as the data of its events.
pub(super) fn chunks(
    answer: &FakeAnswer,
    ending: &Ending<FakeError>,
    names: AnswerNames<'_>,
    includes_usage: bool,
) -> Vec<String> {
    let chunk = |delta: Value, finish_reason: Value| {
        let mut chunk = head(answer, names, "chat.completion.chunk");
        chunk["choices"] =
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]);
        if includes_usage {
            chunk["usage"] = Value::Null;
        }
        chunk.to_string()
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null)];
    let mut calls = 0;
    for block in &answer.response.content {
        match block.kind() {
            BlockKind::Text(text) => {
                let member = text_member(answer);
                let pieces = answer.split(text);
                events.extend(pieces.map(|piece| chunk(json!({member: piece}), Value::Null)));
            }
            BlockKind::Thinking(text) => {
                let pieces = answer.split(text);
                events.extend(pieces.map(|piece| chunk(json!({"reasoning_content": piece}), Value::Null)));
            }
            BlockKind::ToolUse(call) => {
                let begin = json!({"index": calls, "id": call.id.as_str(), "type": "function",
                    "function": {"name": wire_name(&call.name), "arguments": ""}});
                events.push(chunk(json!({"tool_calls": [begin]}), Value::Null));
                for piece in answer.split(call.input.get()) {
                    let more = json!({"index": calls, "function": {"arguments": piece}});
                    events.push(chunk(json!({"tool_calls": [more]}), Value::Null));
                }
                calls += 1;
            }
            _ => {}
        }
    }
    events.push(chunk(json!({}), finish_reason(&answer.response.stop_reason)));
    if includes_usage && answer.reports_usage {
        let mut last = head(answer, names, "chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage(&answer.response.usage);
        events.push(last.to_string());
    }
    match ending {
        Ending::Whole => events.push("[DONE]".to_owned()),
        Ending::Cut { after } => events.truncate(*after),
        Ending::Broken { after, error } => {
            events.truncate(*after);
            events.push(error.body().to_string());
        }
    }
    events
}

/// The body of an answer that is not streamed.
pub(super) fn body(answer: &FakeAnswer, names: AnswerNames<'_>) -> Value {
    let mut message = Map::from_iter([
        ("role".to_owned(), json!("assistant")),
        ("content".to_owned(), Value::Null),
        ("refusal".to_owned(), Value::Null),
    ]);
    let mut add = |name: &str, text: &str| {
        let text = message.get(name).and_then(Value::as_str).unwrap_or_default().to_owned() + text;
        message.insert(name.to_owned(), text.into());
    };
    let mut calls = Vec::new();
    for block in &answer.response.content {
        match block.kind() {
            BlockKind::Text(text) => add(text_member(answer), text),
            BlockKind::Thinking(text) => add("reasoning_content", text),
            BlockKind::ToolUse(call) => calls.push(json!({"id": call.id.as_str(), "type": "function",
                "function": {"name": wire_name(&call.name), "arguments": call.input.get()}})),
            _ => {}
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    let mut body = head(answer, names, "chat.completion");
    body["choices"] = json!([{"index": 0, "message": message, "logprobs": null,
        "finish_reason": finish_reason(&answer.response.stop_reason)}]);
    if answer.reports_usage {
        body["usage"] = usage(&answer.response.usage);
    }
    body
}

/// The member that holds the text of an answer.
fn text_member(answer: &FakeAnswer) -> &'static str {
    if answer.response.stop_reason == StopReason::Refusal { "refusal" } else { "content" }
}

fn head(answer: &FakeAnswer, names: AnswerNames<'_>, object: &str) -> Value {
    let id = answer.response.id.clone().unwrap_or_else(|| format!("chatcmpl-fake-{:06}", names.number));
    json!({
        "id": id, "object": object, "created": names.created,
        "model": answer.response.model.as_deref().unwrap_or(names.model),
        "service_tier": "default", "system_fingerprint": "fp_fake",
    })
}

fn finish_reason(stop: &StopReason) -> Value {
    match stop {
        StopReason::ToolUse => "tool_calls".into(),
        StopReason::MaxTokens | StopReason::ContextWindowExceeded => "length".into(),
        StopReason::Unknown(reason) => reason.as_str().into(),
        StopReason::Missing => Value::Null,
        _ => "stop".into(),
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.total_input(), "completion_tokens": usage.output_tokens, "total_tokens": usage.total(),
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens, "audio_tokens": 0,
            "cache_write_tokens": usage.cache_creation_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0},
    })
}
