//! Validates the form of a request: everything that the service refuses before its model sees the request.

use std::collections::HashSet;
use std::sync::Arc;

use conjure_base::{ContainerId, TurnId};
use conjure_conversation::{ApiErrorKind, HostedSkill, LATEST, Message, Request, ToolDefinition};
use serde_json::{Map, Value};

use super::compaction::{self, ResponseStart};
use super::history::History;
use super::hosted::RequestedContainer;
use super::refusal::Refusal;

/// The fields of a body. Like the service, the fake refuses any other field.
const FIELDS: [&str; 26] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "metadata",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "container",
    "cache_control",
    "service_tier",
    "speed",
    "context_management",
    "compaction",
    "mcp_servers",
    "output_config",
    "output_format",
    "inference_geo",
    "fallbacks",
    "diagnostics",
    "user_profile_id",
];

/// The block types of the user. The service wrote the assistant's blocks itself, so those may have any type.
const USER_BLOCKS: [&str; 6] =
    ["text", "image", "document", "search_result", "tool_result", "container_upload"];
/// The block types in a tool result.
const RESULT_BLOCKS: [&str; 5] = ["text", "image", "document", "search_result", "tool_reference"];
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The largest image, in base64, in bytes.
const MAX_IMAGE_BYTES: usize = 5 << 20;
/// The maximum number of cache breakpoints in one request.
const MAX_BREAKPOINTS: usize = 4;
/// The maximum number of skills in one container.
const MAX_SKILLS: usize = 8;
/// The smallest thinking budget, in tokens.
const MIN_THINKING_TOKENS: u64 = 1024;

/// A request that passed all checks.
#[derive(Debug)]
pub(super) struct ValidatedRequest {
    pub(super) model: String,
    pub(super) is_streamed: bool,
    /// The session that the recorded positions belong to: `metadata.user_id`, or the text of its first message.
    pub(super) session: String,
    pub(super) request: Request,
    /// The number of the assistant's blocks in the history.
    pub(super) blocks: usize,
    /// The number of the assistant's messages in the history.
    pub(super) assistant_messages: usize,
    /// Whether the service compacts the history first.
    pub(super) response_start: ResponseStart,
    /// The containers, skills and files that the request names.
    pub(super) container_request: RequestedContainer,
}

type Check = Result<(), Refusal>;

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::invalid(message))
}

/// Validates a body. `models` are the known models; if empty, every model is known. `betas` are the betas that the request names.
pub(super) fn validate(
    body: &[u8],
    models: &[String],
    betas: &[String],
) -> Result<ValidatedRequest, Refusal> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("The request body is not valid JSON: {error}")))?;
    let Value::Object(body) = body else { return invalid("Input should be an object") };
    if let Some(name) = body.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return invalid(format!("{name}: Extra inputs are not permitted"));
    }
    let model = match body.get("model") {
        None => return invalid("model: Field required"),
        Some(Value::String(model)) if !model.is_empty() => model.clone(),
        Some(Value::String(_)) => return invalid("model: String should have at least 1 character"),
        Some(_) => return invalid("model: Input should be a valid string"),
    };
    let max_tokens = match body.get("max_tokens") {
        None => return invalid("max_tokens: Field required"),
        Some(value) => value.as_u64().filter(|tokens| *tokens > 0),
    };
    let Some(max_tokens) = max_tokens else {
        return invalid("max_tokens: Input should be greater than or equal to 1");
    };
    let is_streamed = match body.get("stream") {
        None => false,
        Some(Value::Bool(stream)) => *stream,
        Some(_) => return invalid("stream: Input should be a valid boolean"),
    };
    let Some(messages) = body.get("messages") else { return invalid("messages: Field required") };
    let Value::Array(messages) = messages else { return invalid("messages: Input should be a valid list") };
    check_options(&body, max_tokens)?;
    let compaction_request = compaction::compaction_request(&body, betas)?;
    let system = check_system(body.get("system"))?;
    let tools = check_tools(&body)?;
    for (index, message) in messages.iter().enumerate() {
        check_message(index, message)?;
    }
    let breakpoints = count_breakpoints(&body);
    if breakpoints > MAX_BREAKPOINTS {
        return invalid(format!(
            "A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {breakpoints}."
        ));
    }
    let history = History::of(messages)?;
    if !models.is_empty() && !models.contains(&model) {
        return Err(Refusal::new(ApiErrorKind::NotFound, format!("model: {model}")));
    }
    let user = body.get("metadata").and_then(|metadata| metadata["user_id"].as_str());
    // Only the text counts, because cache breakpoints move from message to message.
    let first = || history.messages.first().map(Message::text).unwrap_or_default();
    Ok(ValidatedRequest {
        model,
        is_streamed,
        session: user.map_or_else(first, str::to_owned),
        blocks: history.blocks(),
        assistant_messages: history.assistant_messages,
        response_start: compaction::response_start(compaction_request, &history.messages),
        container_request: RequestedContainer::of(&body),
        request: Request {
            turn: TurnId::FIRST,
            call: u32::try_from(history.assistant_messages).unwrap_or(u32::MAX).saturating_add(1),
            instructions: system,
            tools: tools.into(),
            messages: history.messages.into_iter().map(Into::into).collect(),
            container: container_id(body.get("container")),
            hosted: hosted(body.get("container")),
        },
    })
}

/// The id of the container that a request names, with or without skills.
fn container_id(container: Option<&Value>) -> Option<ContainerId> {
    let container = container?;
    container.as_str().or_else(|| container["id"].as_str()).map(ContainerId::new)
}

/// The skills that a request wants in its container.
fn hosted(container: Option<&Value>) -> Arc<[HostedSkill]> {
    let skills = container.map(|container| container["skills"].clone()).unwrap_or_default();
    let skills: Vec<Value> = serde_json::from_value(skills).unwrap_or_default();
    let skill = |skill: &Value| {
        let id = skill["skill_id"].as_str()?;
        let skill_of = match skill["type"].as_str()? {
            "anthropic" => HostedSkill::anthropic(id),
            _ => HostedSkill::custom(id),
        };
        Some(skill_of.with_version(skill["version"].as_str().unwrap_or(LATEST)))
    };
    skills.iter().filter_map(skill).collect()
}

/// Checks the fields that do not depend on the messages.
fn check_options(body: &Map<String, Value>, max_tokens: u64) -> Check {
    if let Some(value) = body.get("temperature") {
        match value.as_f64() {
            Some(temperature) if (0.0..=1.0).contains(&temperature) => {}
            _ => return invalid("temperature: Input should be between 0 and 1"),
        }
    }
    if let Some(thinking) = body.get("thinking") {
        match (thinking["type"].as_str(), thinking["budget_tokens"].as_u64()) {
            (Some("enabled"), Some(budget)) if budget < MIN_THINKING_TOKENS => {
                return invalid(format!(
                    "thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_THINKING_TOKENS}"
                ));
            }
            (Some("enabled"), Some(budget)) if budget >= max_tokens => {
                return invalid("`max_tokens` must be greater than `thinking.budget_tokens`");
            }
            (Some("enabled"), None) => return invalid("thinking.enabled.budget_tokens: Field required"),
            (Some("enabled" | "disabled" | "adaptive"), _) => {}
            _ => return invalid("thinking: Input tag should be 'enabled', 'disabled' or 'adaptive'"),
        }
    }
    if let Some(metadata) = body.get("metadata") {
        let is_valid = metadata.as_object().is_some_and(|fields| {
            fields.iter().all(|(name, value)| name == "user_id" && (value.is_string() || value.is_null()))
        });
        if !is_valid {
            return invalid("metadata: Input should be an object with `user_id`");
        }
    }
    if let Some(sequences) = body.get("stop_sequences") {
        let is_valid = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        if !sequences.as_array().is_some_and(|all| all.iter().all(is_valid)) {
            return invalid("stop_sequences: each stop sequence must contain non-whitespace");
        }
    }
    match body.get("container") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(Value::Object(container)) => {
            let skills = container.get("skills").and_then(Value::as_array).map_or(0, Vec::len);
            if skills > MAX_SKILLS {
                return invalid(format!("container.skills: List should have at most {MAX_SKILLS} items"));
            }
        }
        Some(_) => return invalid("container: Input should be a string or an object"),
    }
    Ok(())
}

fn check_system(system: Option<&Value>) -> Result<Vec<String>, Refusal> {
    match system {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(blocks)) => {
            let text =
                |(place, block): (usize, &Value)| match (block["type"].as_str(), block["text"].as_str()) {
                    (Some("text"), Some("")) => {
                        invalid(format!("system.{place}.text: text content blocks must be non-empty"))
                    }
                    (Some("text"), Some(text)) => Ok(text.to_owned()),
                    _ => invalid(format!("system.{place}: Input should be a text block")),
                };
            blocks.iter().enumerate().map(text).collect()
        }
        Some(_) => invalid("system: Input should be a string or a list of text blocks"),
    }
}

fn check_tools(body: &Map<String, Value>) -> Result<Vec<ToolDefinition>, Refusal> {
    let tools = match body.get("tools") {
        None => &[],
        Some(Value::Array(tools)) => tools.as_slice(),
        Some(_) => return invalid("tools: Input should be a valid list"),
    };
    let mut names = HashSet::new();
    let mut custom = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let kind = tool["type"].as_str().unwrap_or("custom");
        let Some(name) = tool["name"].as_str() else {
            return invalid(format!("tools.{index}.{kind}.name: Field required"));
        };
        if !is_name(name) {
            return invalid(format!(
                "tools.{index}.{kind}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            ));
        }
        if !names.insert(name) {
            return invalid("tools: Tool names must be unique.");
        }
        if kind == "custom" {
            if tool["input_schema"]["type"] != "object" {
                return invalid(format!(
                    "tools.{index}.custom.input_schema.type: Field required, and it should be 'object'"
                ));
            }
            custom.push(ToolDefinition {
                name: name.to_owned(),
                description: tool["description"].as_str().unwrap_or_default().to_owned(),
                input_schema: tool["input_schema"].clone(),
            });
        }
    }
    if body.get("tool_choice").is_some_and(|choice| !choice.is_null()) && tools.is_empty() {
        return invalid("tool_choice: may only be specified while providing tools");
    }
    Ok(custom)
}

fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn check_message(index: usize, message: &Value) -> Check {
    let Value::Object(fields) = message else {
        return invalid(format!("messages.{index}: Input should be an object"));
    };
    if let Some(name) = fields.keys().find(|name| !["role", "content"].contains(&name.as_str())) {
        return invalid(format!("messages.{index}.{name}: Extra inputs are not permitted"));
    }
    let is_user = match fields.get("role").and_then(Value::as_str) {
        Some("user") => true,
        Some("assistant") => false,
        _ => return invalid(format!("messages.{index}.role: Input should be 'user' or 'assistant'")),
    };
    match fields.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(blocks)) => {
            let allowed = is_user.then_some(USER_BLOCKS.as_slice());
            check_blocks(&format!("messages.{index}.content"), blocks, allowed)
        }
        Some(_) => invalid(format!("messages.{index}.content: Input should be a string or a list")),
        None => invalid(format!("messages.{index}.content: Field required")),
    }
}

/// Checks the blocks of one list. `allowed` are the allowed types; `None` allows all.
fn check_blocks(path: &str, blocks: &[Value], allowed: Option<&[&str]>) -> Check {
    for (index, block) in blocks.iter().enumerate() {
        let field_path = format!("{path}.{index}");
        let Some(kind) = block["type"].as_str() else {
            return invalid(format!("{field_path}.type: Field required"));
        };
        // Types that only the assistant may use are refused later, by the check of roles, with a better message.
        let is_checked_later = matches!(kind, "tool_use" | "thinking");
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(&kind) && !is_checked_later) {
            let expected: Vec<String> = allowed.iter().map(|name| format!("'{name}'")).collect();
            return invalid(format!(
                "{field_path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {}",
                expected.join(", ")
            ));
        }
        check_block(&field_path, kind, block)?;
    }
    Ok(())
}

fn check_block(field_path: &str, kind: &str, block: &Value) -> Check {
    let require = |name: &str, is_valid: bool| {
        if is_valid { Ok(()) } else { invalid(format!("{field_path}.{kind}.{name}: Field required")) }
    };
    if let Some(breakpoint) = block.get("cache_control").filter(|breakpoint| !breakpoint.is_null()) {
        if matches!(kind, "thinking" | "redacted_thinking") {
            return invalid(format!("{field_path}.{kind}.cache_control: Extra inputs are not permitted"));
        }
        if breakpoint["type"] != "ephemeral"
            || !matches!(breakpoint["ttl"].as_str(), None | Some("5m" | "1h"))
        {
            return invalid(format!(
                "{field_path}.{kind}.cache_control: Input should be an ephemeral cache control"
            ));
        }
    }
    match kind {
        "text" => require("text", block["text"].is_string()),
        "image" => check_image(field_path, block),
        "document" => require("source", block["source"].is_object()),
        "container_upload" => require("file_id", block["file_id"].is_string()),
        "thinking" => {
            require("thinking", block["thinking"].is_string())?;
            require("signature", block["signature"].is_string())?;
            match block["signature"].as_str() {
                Some("") => invalid(format!("{field_path}: Invalid `signature` in `thinking` block")),
                _ => Ok(()),
            }
        }
        "redacted_thinking" => require("data", block["data"].is_string()),
        "tool_use" | "server_tool_use" => {
            require("id", block["id"].is_string())?;
            require("name", block["name"].is_string())?;
            if !block["id"].as_str().is_some_and(is_name) {
                return invalid(format!(
                    "{field_path}.{kind}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                ));
            }
            if !block["input"].is_object() {
                return invalid(format!("{field_path}.{kind}.input: Input should be a valid dictionary"));
            }
            Ok(())
        }
        "tool_result" => {
            require("tool_use_id", block["tool_use_id"].is_string())?;
            match &block["content"] {
                Value::Null | Value::String(_) => Ok(()),
                Value::Array(parts) => {
                    let path = format!("{field_path}.tool_result.content");
                    check_blocks(&path, parts, Some(&RESULT_BLOCKS))?;
                    match parts.iter().position(|part| part["type"] == "text" && part["text"] == "") {
                        Some(part) => {
                            invalid(format!("{path}.{part}.text: text content blocks must be non-empty"))
                        }
                        None => Ok(()),
                    }
                }
                _ => invalid(format!("{field_path}.tool_result.content: Input should be a string or a list")),
            }
        }
        _ => Ok(()),
    }
}

fn check_image(field_path: &str, block: &Value) -> Check {
    let source = &block["source"];
    let field_path = format!("{field_path}.image.source");
    match source["type"].as_str() {
        Some("base64") => {
            if !source["media_type"].as_str().is_some_and(|kind| IMAGES.contains(&kind)) {
                return invalid(format!(
                    "{field_path}.base64.media_type: Input should be one of {}",
                    IMAGES.join(", ")
                ));
            }
            let Some(data) = source["data"].as_str() else {
                return invalid(format!("{field_path}.base64.data: Field required"));
            };
            if data.len() > MAX_IMAGE_BYTES {
                return invalid(format!(
                    "{field_path}.base64: image exceeds 5 MB maximum: {} bytes > {MAX_IMAGE_BYTES} bytes",
                    data.len()
                ));
            }
            Ok(())
        }
        Some("url" | "file") => Ok(()),
        _ => invalid(format!("{field_path}: Input should be of type 'base64', 'url' or 'file'")),
    }
}

/// Counts the cache breakpoints on the body, tools, instructions and blocks, and on the parts of results.
fn count_breakpoints(body: &Map<String, Value>) -> usize {
    fn direct_breakpoints(value: &Value) -> usize {
        usize::from(value.get("cache_control").is_some_and(|breakpoint| !breakpoint.is_null()))
    }
    fn list(value: Option<&Value>) -> &[Value] {
        value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
    let own_count = usize::from(body.get("cache_control").is_some_and(|breakpoint| !breakpoint.is_null()));
    let stable =
        list(body.get("tools")).iter().chain(list(body.get("system"))).map(direct_breakpoints).sum::<usize>();
    let blocks = list(body.get("messages")).iter().flat_map(|message| list(message.get("content")));
    let count_in_block = |block: &Value| {
        let parts = list(block.get("content")).iter().chain(list(block["source"].get("content")));
        direct_breakpoints(block) + parts.map(direct_breakpoints).sum::<usize>()
    };
    own_count + stable + blocks.map(count_in_block).sum::<usize>()
}
