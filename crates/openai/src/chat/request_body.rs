//! Writes the body of a Chat Completions request: stable parts first, messages last.
//!
//! **Byte prefix.** Let tools, instructions and options be unchanged. Then the body of call N, up to the end of its messages, is a byte
//! prefix of the body of call N+1. This holds because the writer of a message only looks at that message and the answer before it.
//!
//! **Messages.** Content is a plain string if possible, because some servers split lists into several messages. A user message becomes one
//! `tool` message for each result, directly after the calls, and then one `user` message. A `tool` message can only have text, so images of
//! results go into the `user` message.
//!
//! An answer of the same origin is sent back in its native form, byte for byte. Of any other answer, only the text and the calls are sent.

use conjure_conversation::{Message, NativeItem, Origin, Request, Role, ToolCall};
use conjure_model_http::{CallOptions, RequestSize, quoted};
use serde::Deserialize;
use serde_json::Value;

use crate::history::{CallIds, TranslatedAnswer, UserMessage, UserPart, only_text};
use crate::request_writer::{RequestWriter, estimated_size, joined_instructions};
use crate::tool_names::wire_name;

/// The content of a `tool` message whose result has no text.
const NO_TEXT: &str = "(no text)";
/// The content of a `tool` message whose result is in the next message.
const IN_NEXT_MESSAGE: &str = "(see the next message)";

/// OpenAI itself. Its newer models refuse `max_tokens`, the member that all other services know.
const OPENAI: &str = "api.openai.com";
/// DeepSeek, which refuses answers with tool calls that lack their reasoning. So it gets the reasoning of other services too.
const DEEPSEEK: &str = "api.deepseek.com";

/// Writes the body of `request` for the service of this origin.
pub(super) fn request_body(
    request: &Request,
    options: &CallOptions,
    origin: &Origin,
) -> (Vec<u8>, RequestSize) {
    let mut body = RequestWriter::with_capacity(estimated_size(request));
    body.raw("{\"model\":");
    body.string(options.model());
    if let Some(max_tokens) = options.max_tokens() {
        let is_openai = host(origin) == OPENAI;
        body.member(if is_openai { "max_completion_tokens" } else { "max_tokens" }, &max_tokens.into());
    }
    body.raw(",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    for (name, value) in options.extra(!request.tools.is_empty()) {
        body.member(name, value);
    }
    if !request.tools.is_empty() {
        body.raw(",\"tools\":[");
        for (place, tool) in request.tools.iter().enumerate() {
            body.separate(place);
            body.raw("{\"type\":\"function\",\"function\":{\"name\":");
            body.string(&wire_name(&tool.name));
            body.member("description", &Value::from(tool.description.as_str()));
            body.member("parameters", &tool.input_schema);
            body.raw("}}");
        }
        body.raw("]");
    }
    body.raw(",\"messages\":[");
    let mut messages = MessageWriter { body, written: 0, calls: CallIds::default() };
    if let Some(instructions) = joined_instructions(request) {
        messages.begin("system");
        messages.body.string(&instructions);
        messages.body.raw("}");
    }
    for message in &request.messages {
        match message.role {
            Role::User => messages.user(message),
            Role::Assistant => messages.assistant(message, origin),
        }
    }
    let mut body = messages.body;
    body.raw("]}");
    body.finish()
}

struct MessageWriter {
    body: RequestWriter,
    /// The number of written messages.
    written: usize,
    /// The calls of the last answer.
    calls: CallIds,
}

impl MessageWriter {
    fn next(&mut self) {
        self.body.separate(self.written);
        self.written += 1;
    }

    /// Begins a message, up to the value of its content.
    fn begin(&mut self, role: &str) {
        self.next();
        self.body.raw("{\"role\":");
        self.body.string(role);
        self.body.raw(",\"content\":");
    }

    fn user(&mut self, message: &Message) {
        let UserMessage { results, parts } = UserMessage::read(message, &std::mem::take(&mut self.calls));
        let mut media = Vec::new();
        for result in results {
            let (texts, other_parts): (Vec<UserPart>, Vec<UserPart>) =
                result.parts.into_iter().partition(|part| matches!(part, UserPart::Text(_)));
            let text = only_text(&texts).filter(|text| !text.trim().is_empty());
            let without = if other_parts.is_empty() { NO_TEXT } else { IN_NEXT_MESSAGE };
            self.next();
            self.body.raw("{\"role\":\"tool\",\"tool_call_id\":");
            self.body.string(&result.call_id);
            self.body.raw(",\"content\":");
            self.body.string(text.as_deref().unwrap_or(without));
            self.body.raw("}");
            if !other_parts.is_empty() {
                media.push(UserPart::Text(format!("From the result of the tool call {}:", result.call_id)));
                media.extend(other_parts);
            }
        }
        let parts: Vec<UserPart> = media.into_iter().chain(parts).collect();
        if parts.is_empty() {
            return;
        }
        self.begin("user");
        match only_text(&parts) {
            Some(text) => self.body.string(&text),
            None => self.parts(&parts),
        }
        self.body.raw("}");
    }

    fn parts(&mut self, parts: &[UserPart]) {
        self.body.raw("[");
        for (place, part) in parts.iter().enumerate() {
            self.body.separate(place);
            match part {
                UserPart::Text(text) => {
                    self.body.raw("{\"type\":\"text\",\"text\":");
                    self.body.string(text);
                    self.body.raw("}");
                }
                UserPart::Image { url } => {
                    self.body.raw("{\"type\":\"image_url\",\"image_url\":{\"url\":");
                    self.body.data(url);
                    self.body.raw("}}");
                }
                UserPart::File { name, data } => {
                    self.body.raw("{\"type\":\"file\",\"file\":{\"filename\":");
                    self.body.string(name);
                    self.body.raw(",\"file_data\":");
                    self.body.data(data);
                    self.body.raw("}}");
                }
            }
        }
        self.body.raw("]");
    }

    fn assistant(&mut self, message: &Message, origin: &Origin) {
        if let Some((item, calls)) = native_message(message, origin) {
            self.next();
            self.body.raw(item.json());
            self.calls = calls;
            return;
        }
        let answer = TranslatedAnswer::read(message);
        self.calls = CallIds::translated(&answer.calls);
        self.begin("assistant");
        if answer.text.is_empty() && !answer.calls.is_empty() {
            self.body.raw("null");
        } else {
            self.body.string(&answer.text);
        }
        if !answer.calls.is_empty() {
            if host(origin) == DEEPSEEK {
                self.body.member("reasoning_content", &answer.thinking.into());
            }
            self.body.raw(",\"tool_calls\":[");
            for (place, call) in answer.calls.iter().enumerate() {
                self.body.separate(place);
                self.body.raw(&call_json(call));
            }
            self.body.raw("]");
        }
        self.body.raw("}");
    }
}

fn host(origin: &Origin) -> &str {
    origin.service.split(':').next().unwrap_or_default()
}

/// A call of another service's answer. Its arguments are always JSON, because servers refuse a history with other arguments.
fn call_json(call: &ToolCall) -> String {
    format!(
        r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}}"#,
        quoted(call.id.as_str()),
        quoted(&wire_name(&call.name)),
        quoted(call.input.get())
    )
}

/// The native form of an answer and the ids of its calls, if this origin wrote the answer.
fn native_message<'m>(message: &'m Message, origin: &Origin) -> Option<(&'m NativeItem, CallIds)> {
    #[derive(Deserialize)]
    struct Called {
        #[serde(default)]
        tool_calls: Vec<Call>,
    }
    #[derive(Deserialize)]
    struct Call {
        id: String,
    }
    let native = message.native.as_ref().filter(|native| native.origin == *origin)?;
    let [item] = native.items.as_slice() else { return None };
    let called: Called = serde_json::from_str(item.json()).ok()?;
    let ids = called.tool_calls.into_iter().map(|call| call.id).collect();
    Some((item, CallIds::native(message.tool_calls(), ids)?))
}

#[cfg(test)]
mod tests;
