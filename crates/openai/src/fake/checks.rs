//! Checks that both APIs share: members, types, names of tools.

use std::collections::HashSet;

use conjure_conversation::{Block, ToolDefinition};
use serde_json::{Map, Value, json};

use super::error::FakeError;

/// The result of a check.
pub(super) type Checked<T> = Result<T, FakeError>;

pub(super) fn invalid<T>(message: impl Into<String>) -> Checked<T> {
    Err(FakeError::invalid(message))
}

/// The members of a body. The body must be an object, and its members must have known names.
pub(super) fn object<'v>(value: &'v Value, at: &str, known: &[&str]) -> Checked<&'v Map<String, Value>> {
    let Value::Object(members) = value else {
        return invalid(format!("Invalid type for '{at}': expected an object."));
    };
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            Err(FakeError::invalid(format!("Unknown parameter: '{at}.{name}'."))
                .with_code("unknown_parameter"))
        }
        None => Ok(members),
    }
}

/// A required text.
pub(super) fn text<'v>(members: &'v Map<String, Value>, at: &str, name: &str) -> Checked<&'v str> {
    match members.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => invalid(format!("Invalid type for '{at}.{name}': expected a string.")),
        None => Err(FakeError::invalid(format!("Missing required parameter: '{at}.{name}'."))
            .with_code("missing_required_parameter")),
    }
}

/// The model of a body. If `models` is not empty, it must contain the model.
pub(super) fn model(body: &Map<String, Value>, models: &[String]) -> Checked<String> {
    match body.get("model").and_then(Value::as_str) {
        None | Some("") => invalid("you must provide a model parameter"),
        Some(model) if !models.is_empty() && !models.iter().any(|known| known == model) => {
            let message = format!("The model `{model}` does not exist or you do not have access to it.");
            Err(FakeError::new(&conjure_conversation::ApiErrorKind::NotFound, message))
        }
        Some(model) => Ok(model.to_owned()),
    }
}

/// Checks the types of optional members.
pub(super) fn options(body: &Map<String, Value>, has_tools: bool) -> Checked<()> {
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        if let Some(value) = body.get(name)
            && value.as_u64().is_none_or(|tokens| tokens == 0)
        {
            return invalid(format!("Invalid '{name}': expected an integer of at least 1."));
        }
    }
    for name in ["tool_choice", "parallel_tool_calls"] {
        if body.contains_key(name) && !has_tools {
            return invalid(format!("'{name}' is only allowed when 'tools' are specified."));
        }
    }
    if let Some(value) = body.get("temperature")
        && value.as_f64().is_none_or(|temperature| !(0.0..=2.0).contains(&temperature))
    {
        return invalid("Invalid 'temperature': expected a number from 0 to 2.");
    }
    if body.get("stream").is_some_and(|stream| !stream.is_boolean()) {
        return invalid("Invalid type for 'stream': expected a boolean.");
    }
    Ok(())
}

/// Reads a tool from the members that describe it.
pub(super) fn tool(members: &Map<String, Value>, at: &str) -> Checked<ToolDefinition> {
    let name = tool_name(members, at)?;
    let schema = members.get("parameters").cloned().unwrap_or_else(|| json!({"type": "object"}));
    if schema["type"] != "object" {
        return invalid(format!("Invalid schema for function '{name}': schema must have type 'object'."));
    }
    Ok(ToolDefinition {
        name: name.to_owned(),
        description: members.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
        input_schema: schema,
    })
}

/// The name of a tool, in the form that the service demands.
pub(super) fn tool_name<'v>(members: &'v Map<String, Value>, at: &str) -> Checked<&'v str> {
    let name = text(members, at, "name")?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=64).contains(&name.len()) && name.bytes().all(is_valid) {
        return Ok(name);
    }
    invalid(format!(
        "Invalid '{at}.name': string does not match pattern. Expected a string of at most 64 characters that matches the pattern '^[a-zA-Z0-9_-]+$'."
    ))
}

/// Checks that the names of tools differ.
pub(super) fn unique(tools: &[ToolDefinition]) -> Checked<()> {
    let mut names = HashSet::new();
    match tools.iter().find(|tool| !names.insert(tool.name.as_str())) {
        Some(tool) => invalid(format!("Tool names must be unique: '{}'.", tool.name)),
        None => Ok(()),
    }
}

/// The `tool_use` block of a call in a history. The arguments must be JSON here. The service accepts any text, but other servers do not, so
/// the fake is strict.
pub(super) fn call_block(id: &str, name: &str, arguments: &str, at: &str) -> Checked<Block> {
    let input: Value = serde_json::from_str(arguments).map_err(|error| {
        FakeError::invalid(format!("Invalid '{at}.arguments': not valid JSON ({error})."))
    })?;
    Ok(Block::tool_use(id, name, &input))
}

/// The blocks of a content. It is a text, or a list of parts of these types.
pub(super) fn content(value: &Value, at: &str, allowed: &[&str]) -> Checked<Vec<Block>> {
    let parts = match value {
        Value::String(text) => return Ok(vec![Block::text(text.as_str())]),
        Value::Array(parts) if parts.is_empty() => {
            return invalid(format!("Invalid '{at}': empty array. Expected an array with minimum length 1."));
        }
        Value::Array(parts) => parts,
        _ => {
            return invalid(format!(
                "Invalid type for '{at}': expected one of a string or array of objects."
            ));
        }
    };
    let mut blocks = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let at = format!("{at}[{place}]");
        let kind = part["type"].as_str().unwrap_or_default();
        if !allowed.contains(&kind) {
            return invalid(format!(
                "Invalid value: '{kind}'. Supported values for '{at}.type' are: {}.",
                allowed.join(", ")
            ));
        }
        let need = |is_there: bool, name: &str| {
            if is_there { Ok(()) } else { invalid(format!("Missing required parameter: '{at}.{name}'.")) }
        };
        match kind {
            "text" | "input_text" | "output_text" => {
                need(part["text"].is_string(), "text")?;
                blocks.push(Block::text(part["text"].as_str().unwrap_or_default()));
            }
            "refusal" => {
                need(part["refusal"].is_string(), "refusal")?;
                blocks.push(Block::text(part["refusal"].as_str().unwrap_or_default()));
            }
            "image_url" => need(is_image(&part["image_url"]["url"]), "image_url.url")?,
            "input_image" => need(is_image(&part["image_url"]) || part["file_id"].is_string(), "image_url")?,
            "file" => need(part["file"].is_object(), "file")?,
            _ => need(part["file_data"].is_string() || part["file_id"].is_string(), "file_data")?,
        }
    }
    Ok(blocks)
}

/// Whether it is the URL of an image, or an image as a `data:` URL.
fn is_image(url: &Value) -> bool {
    let url = url.as_str().unwrap_or_default();
    let is_data = url.starts_with("data:image/") && url.contains(";base64,");
    is_data || url.starts_with("https://") || url.starts_with("http://")
}
