//! Validates a Chat Completions request, as the service does before its model sees the request.

use std::collections::BTreeSet;

use conjure_conversation::{Role, ToolDefinition};
use serde_json::{Map, Value};

use super::checks::{
    Checked, call_block, content, invalid, model, object, options, text, tool, tool_name, unique,
};
use super::validated::{CanonicalHistory, ValidatedRequest};

/// The members of a body. Any other is refused.
const MEMBERS: [&str; 33] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "temperature",
    "top_p",
    "stop",
    "n",
    "seed",
    "response_format",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
    "service_tier",
    "metadata",
    "store",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "frequency_penalty",
    "presence_penalty",
    "verbosity",
    "modalities",
    "prediction",
    "web_search_options",
];
const USER_PARTS: [&str; 3] = ["text", "image_url", "file"];
const ASSISTANT_PARTS: [&str; 2] = ["text", "refusal"];

/// Validates a body. `models` are the known models; if empty, every model is known.
pub(super) fn validate(body: &[u8], models: &[String]) -> Checked<ValidatedRequest> {
    let body: Value = serde_json::from_slice(body)
        .or_else(|error| invalid(format!("We could not parse the JSON body of your request. ({error})")))?;
    let body = object(&body, "body", &MEMBERS)?;
    let model = model(body, models)?;
    let tools = tools(body)?;
    options(body, !tools.is_empty())?;
    let is_streamed = body.get("stream") == Some(&Value::Bool(true));
    if body.contains_key("stream_options") && !is_streamed {
        return invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    }
    if body.contains_key("max_tokens") && body.contains_key("max_completion_tokens") {
        return invalid(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        );
    }
    let Some(Value::Array(messages)) = body.get("messages") else {
        return invalid("Missing required parameter: 'messages'.");
    };
    let history = history(messages)?;
    let named = body.get("prompt_cache_key").and_then(Value::as_str).map(str::to_owned);
    Ok(ValidatedRequest {
        model,
        is_streamed,
        includes_usage: body.get("stream_options").is_some_and(|options| options["include_usage"] == true),
        session: named.unwrap_or_else(|| history.first_text()),
        answers: history.answers(),
        request: history.into_request(tools),
    })
}

fn tools(body: &Map<String, Value>) -> Checked<Vec<ToolDefinition>> {
    let listed = match body.get("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(tools)) if !tools.is_empty() => tools,
        Some(_) => return invalid("Invalid 'tools': expected an array with minimum length 1."),
    };
    let mut tools = Vec::new();
    for (place, listed) in listed.iter().enumerate() {
        let at = format!("tools[{place}]");
        let members = object(listed, &at, &["type", "function"])?;
        if text(members, &at, "type")? != "function" {
            return invalid(format!("Invalid value: '{at}.type'. Supported values are: 'function'."));
        }
        let at = format!("{at}.function");
        let function = object(&listed["function"], &at, &["name", "description", "parameters", "strict"])?;
        tools.push(tool(function, &at)?);
    }
    unique(&tools)?;
    Ok(tools)
}

/// Reads the messages, and checks that the result of each call follows the call directly.
fn history(messages: &[Value]) -> Checked<CanonicalHistory> {
    if messages.is_empty() {
        return invalid("Invalid 'messages': empty array. Expected an array with minimum length 1.");
    }
    let mut history = CanonicalHistory::default();
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (place, message) in messages.iter().enumerate() {
        let at = format!("messages[{place}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return missing_results(&open);
        }
        match role {
            "system" | "developer" => {
                let members = object(message, &at, &["role", "content", "name"])?;
                for block in content(required(members, &at)?, &format!("{at}.content"), &["text"])? {
                    if let conjure_conversation::BlockKind::Text(text) = block.kind() {
                        history.instructions.push(text.clone());
                    }
                }
            }
            "user" => {
                let members = object(message, &at, &["role", "content", "name"])?;
                let blocks = content(required(members, &at)?, &format!("{at}.content"), &USER_PARTS)?;
                history.push(Role::User, blocks);
            }
            "assistant" => open = assistant(message, &at, &mut history)?,
            "tool" => {
                let members = object(message, &at, &["role", "content", "tool_call_id"])?;
                let id = text(members, &at, "tool_call_id")?;
                if !open.remove(id) {
                    return invalid(
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                    );
                }
                let blocks = content(required(members, &at)?, &format!("{at}.content"), &["text"])?;
                let texts = blocks.iter().filter_map(|block| match block.kind() {
                    conjure_conversation::BlockKind::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                history.push_result(id, texts.collect::<Vec<_>>().join("\n"));
            }
            other => {
                return invalid(format!(
                    "Invalid value: '{other}'. Supported values for '{at}.role' are: 'system', 'assistant', 'user', 'tool', and 'developer'."
                ));
            }
        }
    }
    if open.is_empty() { Ok(history) } else { missing_results(&open) }
}

fn missing_results<T>(open: &BTreeSet<String>) -> Checked<T> {
    let ids: Vec<&str> = open.iter().map(String::as_str).collect();
    invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        ids.join(", ")
    ))
}

fn required<'v>(members: &'v Map<String, Value>, at: &str) -> Checked<&'v Value> {
    match members.get("content") {
        Some(content) => Ok(content),
        None => invalid(format!("Missing required parameter: '{at}.content'.")),
    }
}

/// Reads an answer and returns the ids of its calls. It may contain reasoning, because compatible servers write that.
fn assistant(message: &Value, at: &str, history: &mut CanonicalHistory) -> Checked<BTreeSet<String>> {
    let known =
        ["role", "content", "name", "refusal", "tool_calls", "annotations", "reasoning", "reasoning_content"];
    let members = object(message, at, &known)?;
    let calls = match members.get("tool_calls") {
        None => &[],
        Some(Value::Array(calls)) if !calls.is_empty() => calls.as_slice(),
        Some(_) => {
            return invalid(format!("Invalid '{at}.tool_calls': expected an array with minimum length 1."));
        }
    };
    let mut blocks = match members.get("content") {
        None | Some(Value::Null) if calls.is_empty() && !message["refusal"].is_string() => {
            return invalid(format!("Invalid value for '{at}.content': expected a string, got null."));
        }
        None | Some(Value::Null) => Vec::new(),
        Some(value) => content(value, &format!("{at}.content"), &ASSISTANT_PARTS)?,
    };
    let mut ids = BTreeSet::new();
    for (place, call) in calls.iter().enumerate() {
        let at = format!("{at}.tool_calls[{place}]");
        let members = object(call, &at, &["id", "type", "function"])?;
        let id = text(members, &at, "id")?;
        if text(members, &at, "type")? != "function" {
            return invalid(format!("Invalid value for '{at}.type': expected 'function'."));
        }
        let function = object(&call["function"], &format!("{at}.function"), &["name", "arguments"])?;
        let name = tool_name(function, &format!("{at}.function"))?;
        let arguments = text(function, &format!("{at}.function"), "arguments")?;
        blocks.push(call_block(id, name, arguments, &at)?);
        if !ids.insert(id.to_owned()) {
            return invalid(format!("Duplicate value for 'tool_call_id': {id}"));
        }
    }
    history.push(Role::Assistant, blocks);
    Ok(ids)
}
