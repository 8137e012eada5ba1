//! Reads the contents of a request as messages, and checks the order of calls, results and signatures.

use std::sync::Arc;

use conjure_conversation::{Block, Message, Role};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::signature;

/// A history that passed all checks.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) messages: Vec<Arc<Message>>,
    /// The number of contents of the model.
    pub(super) answers: usize,
}

/// A call that has no result yet.
#[derive(Debug)]
struct OpenCall {
    id: String,
    name: String,
    /// Whether the service gave the id.
    has_own_id: bool,
}

impl History {
    /// Builds the history from these contents, whose form was checked before.
    pub(super) fn of(contents: &[Value]) -> Result<Self, Refusal> {
        let mut history = Self::default();
        let mut open: Vec<OpenCall> = Vec::new();
        let mut calls = 0;
        for (index, content) in contents.iter().enumerate() {
            let parts = content["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_user = content["role"] != "model";
            check_signatures(index, parts)?;
            if is_user {
                let results = match_results(index, parts, std::mem::take(&mut open))?;
                let mut results = results.into_iter();
                let blocks = parts.iter().filter_map(|part| match part.get("functionResponse") {
                    Some(response) => result_block(&results.next()?.id, response),
                    None => block(part),
                });
                history.push(Role::User, blocks.collect());
                continue;
            }
            if !open.is_empty() {
                return Err(no_results());
            }
            let follows_user = index > 0 && contents[index - 1]["role"] != "model";
            let mut blocks = Vec::new();
            for part in parts {
                let Some(call) = part.get("functionCall") else {
                    blocks.extend(block(part));
                    continue;
                };
                calls += 1;
                // A call without an id gets the id that scripts give to their calls.
                let given_id = call["id"].as_str().filter(|id| !id.is_empty());
                let id = given_id.map_or_else(|| format!("toolu_script_{calls}"), str::to_owned);
                let name = call["name"].as_str().unwrap_or_default().to_owned();
                let input = call.get("args").cloned().unwrap_or_else(|| json!({}));
                blocks.push(Block::tool_use(&id, &name, &input));
                open.push(OpenCall { id, name, has_own_id: given_id.is_some() });
            }
            if !open.is_empty() && !follows_user {
                return Err(Refusal::invalid(
                    "Please ensure that function call turn comes immediately after a user turn or after a function \
                     response turn.",
                ));
            }
            history.answers += 1;
            history.push(Role::Assistant, blocks);
        }
        if open.is_empty() { Ok(history) } else { Err(no_results()) }
    }

    /// Appends blocks to the last message if it has this role, or else starts a message.
    fn push(&mut self, role: Role, blocks: Vec<Block>) {
        match self.messages.last_mut().filter(|last| last.role == role) {
            Some(last) => Arc::make_mut(last).content.extend(blocks),
            None => self.messages.push(Arc::new(Message { role, content: blocks, native: None })),
        }
    }

    /// The text of the first message, which identifies the session.
    pub(super) fn first_text(&self) -> String {
        self.messages.first().map(|message| message.text()).unwrap_or_default()
    }
}

fn no_results() -> Refusal {
    Refusal::invalid(
        "Please ensure that the number of function response parts is equal to the number of function call parts of \
         the function call turn.",
    )
}

/// Checks that these parts have the results of all open calls, in order. Returns those calls.
fn match_results(index: usize, parts: &[Value], open: Vec<OpenCall>) -> Result<Vec<OpenCall>, Refusal> {
    let results: Vec<&Value> = parts.iter().filter_map(|part| part.get("functionResponse")).collect();
    if open.is_empty() && !results.is_empty() {
        return Err(Refusal::invalid(
            "Please ensure that function response turn comes immediately after a function call turn.",
        ));
    }
    if open.len() != results.len() {
        return Err(no_results());
    }
    for (call, result) in open.iter().zip(results) {
        let (name, id) = (result["name"].as_str().unwrap_or_default(), result["id"].as_str());
        if name != call.name {
            return Err(Refusal::invalid(format!(
                "contents[{index}]: the function response `{name}` was given, but that of `{}` was expected.",
                call.name
            )));
        }
        if id != call.has_own_id.then_some(call.id.as_str()) {
            return Err(Refusal::invalid(format!(
                "contents[{index}]: the id of the function response `{name}` is not that of its function call."
            )));
        }
    }
    Ok(open)
}

/// Checks that each signature is in its own part, and that the first call of a content has one.
fn check_signatures(index: usize, parts: &[Value]) -> Result<(), Refusal> {
    if parts.iter().any(|part| !signature::is_valid(part)) {
        return Err(Refusal::invalid("Corrupted thought signature."));
    }
    let first_call = parts.iter().find(|part| part.get("functionCall").is_some());
    let Some(unsigned) = first_call.filter(|part| part.get(signature::MEMBER).is_none()) else {
        return Ok(());
    };
    let name = unsigned["functionCall"]["name"].as_str().unwrap_or_default();
    Err(Refusal::invalid(format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
         correctly, and missing thought_signature may lead to degraded model performance. Additional data, function \
         call `default_api:{name}` , position {index}. Please refer to \
         https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    )))
}

/// The block of a part; `None` for a part that only the service reads.
fn block(part: &Value) -> Option<Block> {
    if let Some(text) = part["text"].as_str() {
        if text.is_empty() {
            return None;
        }
        if part["thought"] == true {
            let json = json!({"type": "thinking", "thinking": text, "signature": ""});
            return Block::from_json(json.to_string()).ok();
        }
        return Some(Block::text(text));
    }
    image(&part["inlineData"]).and_then(|json| Block::from_json(json.to_string()).ok())
}

/// The image or document of these bytes.
fn image(blob: &Value) -> Option<Value> {
    let media_type = blob["mimeType"].as_str()?;
    let kind = if media_type.starts_with("image/") { "image" } else { "document" };
    let source = json!({"type": "base64", "media_type": media_type, "data": blob["data"]});
    Some(json!({"type": kind, "source": source}))
}

fn result_block(id: &str, response: &Value) -> Option<Block> {
    let value = &response["response"];
    let (text, is_error) = match (value.get("error"), value.get("output")) {
        (Some(error), _) => (error, true),
        (None, Some(output)) => (output, false),
        (None, None) => (value, false),
    };
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    let mut content = vec![json!({"type": "text", "text": text})];
    let parts = response["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    content.extend(parts.iter().filter_map(|part| image(&part["inlineData"])));
    let content = if content.len() == 1 { Value::from(text) } else { Value::from(content) };
    let json = json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error});
    Block::from_json(json.to_string()).ok()
}
