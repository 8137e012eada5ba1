//! Validates a request of the Responses API, as the service does before its model sees the request. The fake stores no responses, so a
//! request cannot refer to an earlier one.

use std::collections::BTreeSet;

use conjure_conversation::{Role, ToolDefinition};
use serde_json::{Map, Value};

use super::checks::{
    Checked, call_block, content, invalid, model, object, options, text, tool, tool_name, unique,
};
use super::error::FakeError;
use super::validated::{CanonicalHistory, ValidatedRequest};

/// The members of a body. Any other is refused.
const MEMBERS: [&str; 30] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "store",
    "include",
    "max_output_tokens",
    "max_tool_calls",
    "reasoning",
    "temperature",
    "top_p",
    "top_logprobs",
    "text",
    "truncation",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
    "service_tier",
    "context_management",
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
];
const INPUT_PARTS: [&str; 3] = ["input_text", "input_image", "input_file"];
const OUTPUT_PARTS: [&str; 2] = ["output_text", "refusal"];

/// Validates a body. `models` are the known models; if empty, every model is known.
pub(super) fn validate(body: &[u8], models: &[String]) -> Checked<ValidatedRequest> {
    let body: Value = serde_json::from_slice(body)
        .or_else(|error| invalid(format!("We could not parse the JSON body of your request. ({error})")))?;
    let body = object(&body, "body", &MEMBERS)?;
    let model = model(body, models)?;
    let tools = tools(body)?;
    options(body, !tools.is_empty())?;
    if let Some(id) = body.get("previous_response_id").and_then(Value::as_str) {
        let message = format!("Previous response with id '{id}' not found.");
        return Err(FakeError::invalid(message).with_code("previous_response_not_found"));
    }
    let mut history = CanonicalHistory::default();
    if let Some(instructions) = body.get("instructions").and_then(Value::as_str) {
        history.instructions.push(instructions.to_owned());
    }
    match body.get("input") {
        Some(Value::String(text)) => {
            history.push(Role::User, [conjure_conversation::Block::text(text.as_str())]);
        }
        Some(Value::Array(items)) if !items.is_empty() => read_items(items, &mut history)?,
        _ => return invalid("Missing required parameter: 'input'."),
    }
    let named = body.get("prompt_cache_key").and_then(Value::as_str).map(str::to_owned);
    Ok(ValidatedRequest {
        model,
        is_streamed: body.get("stream") == Some(&Value::Bool(true)),
        includes_usage: true,
        session: named.unwrap_or_else(|| history.first_text()),
        answers: history.answers(),
        request: history.into_request(tools),
    })
}

fn tools(body: &Map<String, Value>) -> Checked<Vec<ToolDefinition>> {
    let listed = match body.get("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return invalid("Invalid type for 'tools': expected an array."),
    };
    let mut tools = Vec::new();
    for (place, listed) in listed.iter().enumerate() {
        let at = format!("tools[{place}]");
        let members = object(listed, &at, &["type", "name", "description", "parameters", "strict"])?;
        if text(members, &at, "type")? != "function" {
            return invalid(format!("Invalid value: '{at}.type'. The fake has no tools of the service."));
        }
        for name in ["parameters", "strict"] {
            if !members.contains_key(name) {
                return invalid(format!("Missing required parameter: '{at}.{name}'."));
            }
        }
        let tool = tool(members, &at)?;
        if listed["strict"] == true && tool.input_schema["additionalProperties"] != false {
            return invalid(format!(
                "Invalid schema for function '{}': 'additionalProperties' is required to be supplied and to be false.",
                tool.name
            ));
        }
        tools.push(tool);
    }
    unique(&tools)?;
    Ok(tools)
}

/// Reads the input items. It checks that each call has its result, and that each reasoning item is followed by its item.
fn read_items(items: &[Value], history: &mut CanonicalHistory) -> Checked<()> {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut reasoning: Option<String> = None;
    for (place, item) in items.iter().enumerate() {
        let at = format!("input[{place}]");
        let kind = item["type"].as_str().unwrap_or("message");
        let is_output = matches!(kind, "function_call" | "reasoning")
            || (kind == "message" && item["role"] == "assistant");
        if let Some(id) = reasoning.take().filter(|_| !is_output) {
            return unfollowed(&id);
        }
        match kind {
            "message" => message(item, &at, history)?,
            "reasoning" => {
                let known = ["type", "id", "summary", "content", "encrypted_content", "status"];
                let members = object(item, &at, &known)?;
                if !item["summary"].is_array() {
                    return invalid(format!("Missing required parameter: '{at}.summary'."));
                }
                reasoning = Some(text(members, &at, "id")?.to_owned());
            }
            "function_call" => {
                let members = object(item, &at, &["type", "id", "call_id", "name", "arguments", "status"])?;
                let id = text(members, &at, "call_id")?;
                let name = tool_name(members, &at)?;
                let block = call_block(id, name, text(members, &at, "arguments")?, &at)?;
                history.push(Role::Assistant, [block]);
                open.insert(id.to_owned());
            }
            "function_call_output" => {
                let members = object(item, &at, &["type", "id", "call_id", "output", "status"])?;
                let id = text(members, &at, "call_id")?;
                if !open.remove(id) {
                    return invalid(format!(
                        "No tool call found for function call output with call_id {id}."
                    ));
                }
                let blocks = content(&item["output"], &format!("{at}.output"), &INPUT_PARTS)?;
                let texts: Vec<&str> = blocks
                    .iter()
                    .filter_map(|block| match block.kind() {
                        conjure_conversation::BlockKind::Text(text) => Some(text.as_str()),
                        _ => None,
                    })
                    .collect();
                history.push_result(id, texts.join("\n"));
            }
            other => {
                return invalid(format!(
                    "Invalid value: '{other}'. It is not a supported value of '{at}.type'."
                ));
            }
        }
    }
    if let Some(id) = open.first() {
        return invalid(format!("No tool output found for function call {id}."));
    }
    match reasoning {
        Some(id) => unfollowed(&id),
        None => Ok(()),
    }
}

fn unfollowed<T>(id: &str) -> Checked<T> {
    invalid(format!("Item '{id}' of type 'reasoning' was provided without its required following item."))
}

fn message(item: &Value, at: &str, history: &mut CanonicalHistory) -> Checked<()> {
    let members = object(item, at, &["type", "role", "content", "id", "status", "phase"])?;
    let Some(value) = members.get("content") else {
        return invalid(format!("Missing required parameter: '{at}.content'."));
    };
    let at_content = format!("{at}.content");
    match text(members, at, "role")? {
        "user" => history.push(Role::User, content(value, &at_content, &INPUT_PARTS)?),
        "assistant" => history.push(Role::Assistant, content(value, &at_content, &OUTPUT_PARTS)?),
        "system" | "developer" => {
            content(value, &at_content, &INPUT_PARTS)?;
        }
        other => {
            return invalid(format!("Invalid value: '{other}'. It is not a supported value of '{at}.role'."));
        }
    }
    Ok(())
}
