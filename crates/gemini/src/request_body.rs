//! Writes the request body: stable parts first, the history last.
//!
//! **Byte prefix.** Let tools, instructions and options be unchanged. Then the body of call N, up to the end of its contents, is a byte
//! prefix of the body of call N+1. The order of fields is fixed, and the service's parts are copied byte for byte. Only the continuation
//! token follows the contents. The service caches prompts by such prefixes, without breakpoints.

use conjure_conversation::{Origin, Request};
use conjure_model_http::{CallOptions, RequestSize, quoted};
use serde_json::{Map, Value, json};

use crate::contents::write_contents;
use crate::native_parts::continuation_token;
use crate::tool_names::wire_name;

/// The member with the settings for generating an answer.
const GENERATION_CONFIG: &str = "generationConfig";

/// Writes the body of `request`, for the service and the model of this origin. Also returns the size from which its tokens are estimated.
pub(crate) fn request_body(
    request: &Request,
    options: &CallOptions,
    origin: &Origin,
) -> (Vec<u8>, RequestSize) {
    let mut body = String::with_capacity(estimated_size(request));
    body.push('{');
    let instructions = request.instructions.iter().filter(|text| !text.trim().is_empty());
    let instructions: Vec<String> =
        instructions.map(|text| format!("{{\"text\":{}}}", quoted(text))).collect();
    if !instructions.is_empty() {
        field(&mut body, "systemInstruction", &format!("{{\"parts\":[{}]}}", instructions.join(",")));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "name": wire_name(&tool.name),
                "description": tool.description,
                "parametersJsonSchema": tool.input_schema,
            })
        });
        let tools = json!([{"functionDeclarations": tools.collect::<Vec<Value>>()}]);
        field(&mut body, "tools", &tools.to_string());
    }
    let mut config = Map::new();
    for (name, value) in options.extra(true) {
        match value {
            Value::Object(added) if name == GENERATION_CONFIG => config.clone_from(added),
            _ => field(&mut body, name, &value.to_string()),
        }
    }
    config.extend(options.max_tokens().map(|max| ("maxOutputTokens".to_owned(), Value::from(max))));
    if !config.is_empty() {
        field(&mut body, GENERATION_CONFIG, &Value::Object(config).to_string());
    }
    field(&mut body, "contents", "[");
    let token = continuation_token(request.messages.last().map(AsRef::as_ref), origin);
    // The token stands for the last message, so that message is not sent.
    let history_len = request.messages.len() - usize::from(token.is_some());
    let media = write_contents(&mut body, &request.messages[..history_len], origin);
    body.push(']');
    if let Some(token) = token {
        field(&mut body, "continuationToken", token);
    }
    body.push('}');
    let text_bytes = (body.len() as u64).saturating_sub(media.data_bytes);
    (body.into_bytes(), RequestSize { text_bytes, images: media.count })
}

fn field(body: &mut String, name: &str, json: &str) {
    if body.len() > 1 {
        body.push(',');
    }
    body.push_str(&quoted(name));
    body.push(':');
    body.push_str(json);
}

/// Estimates the size of the body in bytes.
fn estimated_size(request: &Request) -> usize {
    let messages = request.messages.iter();
    let messages: usize = messages
        .map(|message| {
            let blocks: usize = message.content.iter().map(|block| block.json().len() + 40).sum();
            let native = message.native.iter().flat_map(|native| &native.items);
            native.map(|item| item.json().len() + 1).sum::<usize>().max(blocks) + 40
        })
        .sum();
    let instructions: usize = request.instructions.iter().map(String::len).sum();
    messages + instructions + request.tools.len() * 1024 + 1024
}

#[cfg(test)]
mod tests;
