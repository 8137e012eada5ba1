//! Writes an answer as the Responses API does: as events in the service's order, or as one body.

use conjure_conversation::{BlockKind, StopReason, Usage};
use conjure_model_http::fake::Ending;
use serde_json::{Value, json};

use super::answer::{AnswerNames, FakeAnswer};
use super::error::FakeError;
use crate::tool_names::wire_name;

/// The events of a streamed answer, as names and data.
pub(super) fn events(
    answer: &FakeAnswer,
    ending: &Ending<FakeError>,
    names: AnswerNames<'_>,
) -> Vec<(String, String)> {
    let mut writer = Writer { events: Vec::new() };
    let initial = response(answer, names, "in_progress", &[]);
    writer.event("response.created", json!({"response": initial}));
    writer.event("response.in_progress", json!({"response": initial}));
    let items = items(answer, names);
    for (index, item) in items.iter().enumerate() {
        writer.item(index, item, answer);
    }
    let (status, _) = status(&answer.response.stop_reason);
    match ending {
        Ending::Whole => {
            let final_response = response(answer, names, status, &items);
            writer.event(&format!("response.{status}"), json!({"response": final_response}));
        }
        Ending::Cut { after } => writer.events.truncate(*after),
        Ending::Broken { after, error } => {
            writer.events.truncate(*after);
            let event = error.event(writer.events.len());
            writer.events.push(("error".to_owned(), event.to_string()));
        }
    }
    writer.events
}

/// The body of an answer that is not streamed.
pub(super) fn body(answer: &FakeAnswer, names: AnswerNames<'_>) -> Value {
    let (status, _) = status(&answer.response.stop_reason);
    response(answer, names, status, &items(answer, names))
}

/// The status of an answer, and why it is incomplete.
fn status(stop: &StopReason) -> (&'static str, Option<&str>) {
    match stop {
        StopReason::MaxTokens | StopReason::ContextWindowExceeded => {
            ("incomplete", Some("max_output_tokens"))
        }
        StopReason::Unknown(reason) => ("incomplete", Some(reason)),
        _ => ("completed", None),
    }
}

fn response(answer: &FakeAnswer, names: AnswerNames<'_>, status_now: &str, output: &[Value]) -> Value {
    let is_over = status_now != "in_progress";
    let (_, reason) = status(&answer.response.stop_reason);
    let details = reason.filter(|_| is_over).map(|reason| json!({"reason": reason}));
    let usage = (is_over && answer.reports_usage).then(|| usage(&answer.response.usage));
    json!({
        "id": answer.response.id.clone().unwrap_or_else(|| format!("resp_fake{:06}", names.number)),
        "object": "response", "created_at": names.created, "status": status_now, "background": false,
        "error": null, "incomplete_details": details, "instructions": null, "max_output_tokens": null,
        "max_tool_calls": null, "model": answer.response.model.as_deref().unwrap_or(names.model),
        "output": output, "parallel_tool_calls": true, "previous_response_id": null,
        "prompt_cache_key": null, "reasoning": {"effort": null, "summary": null}, "safety_identifier": null,
        "service_tier": "default", "store": false, "temperature": 1.0, "text": {"format": {"type": "text"}},
        "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled",
        "usage": usage, "user": null, "metadata": {},
    })
}

/// The finished items of an answer.
fn items(answer: &FakeAnswer, names: AnswerNames<'_>) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    let number = names.number;
    for block in &answer.response.content {
        let place = items.len();
        match block.kind() {
            BlockKind::Thinking(text) => items.push(json!({
                "id": format!("rs_fake{number:06}{place}"), "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}],
                "encrypted_content": format!("encrypted-{number}-{place}"), "status": "completed",
            })),
            BlockKind::Text(text) => {
                let part = if answer.response.stop_reason == StopReason::Refusal {
                    json!({"type": "refusal", "refusal": text})
                } else {
                    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
                };
                items.push(json!({
                    "id": format!("msg_fake{number:06}{place}"), "type": "message", "status": "completed",
                    "role": "assistant", "content": [part],
                }));
            }
            BlockKind::ToolUse(call) => items.push(json!({
                "id": format!("fc_fake{number:06}{place}"), "type": "function_call", "status": "completed",
                "arguments": call.input.get(), "call_id": call.id.as_str(), "name": wire_name(&call.name),
            })),
            _ => {}
        }
    }
    items
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.total_input(),
        "input_tokens_details": {"cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens},
        "output_tokens": usage.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total(),
    })
}

struct Writer {
    events: Vec<(String, String)>,
}

impl Writer {
    fn event(&mut self, name: &str, mut data: Value) {
        data["type"] = name.into();
        data["sequence_number"] = self.events.len().into();
        self.events.push((name.to_owned(), data.to_string()));
    }

    /// The events of one item.
    fn item(&mut self, index: usize, item: &Value, answer: &FakeAnswer) {
        let mut initial = item.clone();
        initial["status"] = "in_progress".into();
        for (name, empty) in [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))] {
            if item.get(name).is_some() {
                initial[name] = empty;
            }
        }
        if item.get("encrypted_content").is_some() {
            initial["encrypted_content"] = "incompl".into();
        }
        self.event("response.output_item.added", json!({"output_index": index, "item": initial}));
        let place = json!({"item_id": item["id"], "output_index": index});
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.message_part(&place, &item["content"][0], answer),
            "reasoning" => self.summary_part(&place, &item["summary"][0], answer),
            _ => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                for piece in answer.split(arguments) {
                    self.event(
                        "response.function_call_arguments.delta",
                        merged(&place, &json!({"delta": piece})),
                    );
                }
                let done = json!({"arguments": arguments, "name": item["name"]});
                self.event("response.function_call_arguments.done", merged(&place, &done));
            }
        }
        self.event("response.output_item.done", json!({"output_index": index, "item": item}));
    }

    fn message_part(&mut self, place: &Value, part: &Value, answer: &FakeAnswer) {
        let place = merged(place, &json!({"content_index": 0}));
        let is_refusal = part["type"] == "refusal";
        let (event, member) =
            if is_refusal { ("response.refusal", "refusal") } else { ("response.output_text", "text") };
        let more = if is_refusal { json!({}) } else { json!({"logprobs": []}) };
        let text = part[member].as_str().unwrap_or_default();
        let mut initial = part.clone();
        initial[member] = "".into();
        self.event("response.content_part.added", merged(&place, &json!({"part": initial})));
        for piece in answer.split(text) {
            self.event(&format!("{event}.delta"), merged(&merged(&place, &json!({"delta": piece})), &more));
        }
        self.event(&format!("{event}.done"), merged(&merged(&place, &json!({member: text})), &more));
        self.event("response.content_part.done", merged(&place, &json!({"part": part})));
    }

    fn summary_part(&mut self, place: &Value, part: &Value, answer: &FakeAnswer) {
        let place = merged(place, &json!({"summary_index": 0}));
        let text = part["text"].as_str().unwrap_or_default();
        let initial = json!({"type": "summary_text", "text": ""});
        self.event("response.reasoning_summary_part.added", merged(&place, &json!({"part": initial})));
        for piece in answer.split(text) {
            self.event("response.reasoning_summary_text.delta", merged(&place, &json!({"delta": piece})));
        }
        self.event("response.reasoning_summary_text.done", merged(&place, &json!({"text": text})));
        self.event("response.reasoning_summary_part.done", merged(&place, &json!({"part": part})));
    }
}

/// Merges the members of two objects.
fn merged(first: &Value, second: &Value) -> Value {
    let members = [first, second].into_iter().filter_map(Value::as_object).flatten();
    Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
}
