//! Writes the body of a Responses request: stable parts first, the input last.
//!
//! **State.** The service stores nothing (`store: false`). Each request carries the whole history, with the encrypted reasoning of the
//! answers. So `previous_response_id` is never used.
//!
//! **Byte prefix.** Let tools, instructions and options be unchanged. Then the body of call N, up to the end of its input, is a byte prefix
//! of the body of call N+1.
//!
//! An answer of the same origin is sent back as its output items, byte for byte and in order. The order matters, because a reasoning item
//! must be followed by the item that followed it. Of any other answer, only the text and the calls are sent.

use conjure_conversation::{Message, NativeContent, Origin, Request, Role};
use conjure_model_http::{CallOptions, RequestSize};
use serde::Deserialize;
use serde_json::Value;

use crate::history::{CallIds, TranslatedAnswer, UserMessage, UserPart, only_text};
use crate::request_writer::{RequestWriter, estimated_size, joined_instructions};
use crate::tool_names::wire_name;

/// The output of a call whose result is empty.
const NO_TEXT: &str = "(no text)";

/// OpenAI's older models. They do not reason, and refuse a request for encrypted reasoning.
const WITHOUT_REASONING: [&str; 3] = ["gpt-3.5", "gpt-4", "chatgpt-4o"];

/// Writes the body of `request`.
pub(super) fn request_body(
    request: &Request,
    options: &CallOptions,
    origin: &Origin,
) -> (Vec<u8>, RequestSize) {
    let mut body = RequestWriter::with_capacity(estimated_size(request));
    body.raw("{\"model\":");
    body.string(options.model());
    if let Some(max_tokens) = options.max_tokens() {
        body.member("max_output_tokens", &max_tokens.into());
    }
    body.raw(",\"stream\":true,\"store\":false");
    if !WITHOUT_REASONING.iter().any(|name| options.model().starts_with(name)) {
        body.raw(",\"include\":[\"reasoning.encrypted_content\"]");
    }
    for (name, value) in options.extra(!request.tools.is_empty()) {
        body.member(name, value);
    }
    if !request.tools.is_empty() {
        body.raw(",\"tools\":[");
        for (place, tool) in request.tools.iter().enumerate() {
            body.separate(place);
            body.raw("{\"type\":\"function\",\"name\":");
            body.string(&wire_name(&tool.name));
            body.member("description", &Value::from(tool.description.as_str()));
            body.member("parameters", &tool.input_schema);
            // Strict mode is off, because strict schemas have no optional properties.
            body.raw(",\"strict\":false}");
        }
        body.raw("]");
    }
    if let Some(instructions) = joined_instructions(request) {
        body.member("instructions", &instructions.into());
    }
    body.raw(",\"input\":[");
    let mut input = InputWriter { body, written: 0, calls: CallIds::default() };
    for message in &request.messages {
        match message.role {
            Role::User => input.user(message),
            Role::Assistant => input.assistant(message, origin),
        }
    }
    let mut body = input.body;
    body.raw("]}");
    body.finish()
}

struct InputWriter {
    body: RequestWriter,
    /// The number of written items.
    written: usize,
    /// The calls of the last answer.
    calls: CallIds,
}

impl InputWriter {
    fn next(&mut self) {
        self.body.separate(self.written);
        self.written += 1;
    }

    fn user(&mut self, message: &Message) {
        let UserMessage { results, parts } = UserMessage::read(message, &std::mem::take(&mut self.calls));
        for result in results {
            self.next();
            self.body.raw("{\"type\":\"function_call_output\",\"call_id\":");
            self.body.string(&result.call_id);
            self.body.raw(",\"output\":");
            match only_text(&result.parts) {
                Some(text) if text.trim().is_empty() => self.body.string(NO_TEXT),
                _ => self.content(&result.parts),
            }
            self.body.raw("}");
        }
        if !parts.is_empty() {
            self.next();
            self.body.raw("{\"type\":\"message\",\"role\":\"user\",\"content\":");
            self.content(&parts);
            self.body.raw("}");
        }
    }

    /// Writes a text if that is the only part, otherwise a list of parts.
    fn content(&mut self, parts: &[UserPart]) {
        if let Some(text) = only_text(parts) {
            self.body.string(&text);
            return;
        }
        self.body.raw("[");
        for (place, part) in parts.iter().enumerate() {
            self.body.separate(place);
            match part {
                UserPart::Text(text) => {
                    self.body.raw("{\"type\":\"input_text\",\"text\":");
                    self.body.string(text);
                }
                UserPart::Image { url } => {
                    self.body.raw("{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":");
                    self.body.data(url);
                }
                UserPart::File { name, data } => {
                    self.body.raw("{\"type\":\"input_file\",\"filename\":");
                    self.body.string(name);
                    self.body.raw(",\"file_data\":");
                    self.body.data(data);
                }
            }
            self.body.raw("}");
        }
        self.body.raw("]");
    }

    fn assistant(&mut self, message: &Message, origin: &Origin) {
        if let Some((native, calls)) = native_items(message, origin) {
            for item in &native.items {
                self.next();
                self.body.raw(item.json());
            }
            self.calls = calls;
            return;
        }
        let answer = TranslatedAnswer::read(message);
        self.calls = CallIds::translated(&answer.calls);
        if !answer.text.is_empty() {
            self.next();
            self.body.raw("{\"type\":\"message\",\"role\":\"assistant\",\"content\":");
            self.body.string(&answer.text);
            self.body.raw("}");
        }
        for call in answer.calls {
            self.next();
            self.body.raw("{\"type\":\"function_call\",\"call_id\":");
            self.body.string(call.id.as_str());
            self.body.raw(",\"name\":");
            self.body.string(&wire_name(&call.name));
            self.body.raw(",\"arguments\":");
            self.body.string(call.input.get());
            self.body.raw("}");
        }
    }
}

/// The output items of an answer and the ids of its calls, if this origin wrote the answer.
fn native_items<'m>(message: &'m Message, origin: &Origin) -> Option<(&'m NativeContent, CallIds)> {
    #[derive(Deserialize)]
    struct Item {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        call_id: Option<String>,
    }
    let native = message.native.as_deref().filter(|native| native.origin == *origin)?;
    let mut ids = Vec::new();
    for item in &native.items {
        let item: Item = serde_json::from_str(item.json()).ok()?;
        if item.kind == "function_call" {
            ids.push(item.call_id?);
        }
    }
    Some((native, CallIds::native(message.tool_calls(), ids)?))
}

#[cfg(test)]
mod tests;
