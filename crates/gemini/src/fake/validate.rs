//! Validates the form of a request: everything that the service refuses before its model sees the request.

use std::collections::HashSet;

use conjure_conversation::ToolDefinition;
use serde_json::{Map, Value};

use super::field_names::camel_case;
use super::refusal::Refusal;
use crate::tool_names::is_wire_name;

/// The fields of a body. Like the service, the fake refuses any other field.
const FIELDS: [&str; 12] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "store",
    "serviceTier",
    "continuationToken",
    "model",
];
const GENERATION_FIELDS: [&str; 21] = [
    "audioTranscriptionConfig",
    "candidateCount",
    "enableEnhancedCivicAnswers",
    "frequencyPenalty",
    "imageConfig",
    "logprobs",
    "maxOutputTokens",
    "mediaResolution",
    "presencePenalty",
    "responseJsonSchema",
    "responseLogprobs",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "seed",
    "speechConfig",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
];
/// The data members of a part. Each part has exactly one of them.
const PART_DATA: [&str; 9] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];
/// The other members of a part.
const PART_MEMBERS: [&str; 5] =
    ["thought", "thoughtSignature", "mediaResolution", "partMetadata", "videoMetadata"];
const DECLARATION_FIELDS: [&str; 7] = [
    "name",
    "description",
    "parameters",
    "parametersJsonSchema",
    "response",
    "responseJsonSchema",
    "behavior",
];
const MODES: [&str; 4] = ["AUTO", "ANY", "NONE", "VALIDATED"];

/// The facts that the model sees, beside the contents.
#[derive(Debug)]
pub(super) struct ValidatedBody {
    pub(super) instructions: Vec<String>,
    pub(super) tools: Vec<ToolDefinition>,
    pub(super) contents: Vec<Value>,
    /// The token of an answer that is to be continued.
    pub(super) token: Option<String>,
}

type Check = Result<(), Refusal>;

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::invalid(message))
}

/// Validates a body.
pub(super) fn validate(body: &[u8]) -> Result<ValidatedBody, Refusal> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("Invalid JSON payload received. {error}")))?;
    let Value::Object(mut body) = camel_case(body) else {
        return invalid("Invalid JSON payload received. Unexpected token. Expected an object");
    };
    known_fields(&body, &FIELDS, "")?;
    if let Some(config) = body.get("generationConfig") {
        let config = object(config, "generation_config")?;
        known_fields(config, &GENERATION_FIELDS, "generation_config")?;
        if config.get("maxOutputTokens").is_some_and(|max| matches!(max.as_u64(), None | Some(0))) {
            return invalid("max_output_tokens must be positive.");
        }
    }
    let tools = declarations(body.get("tools"))?;
    check_tool_config(body.get("toolConfig"), &tools)?;
    let instructions = instructions(body.get("systemInstruction"))?;
    let token = match body.get("continuationToken") {
        None => None,
        Some(Value::String(token)) if is_base64(token) => Some(token.clone()),
        Some(_) => return invalid("Invalid value at 'continuation_token' (TYPE_BYTES)"),
    };
    let contents = match body.remove("contents") {
        Some(Value::Array(contents)) if !contents.is_empty() => contents,
        None | Some(Value::Array(_)) => {
            return invalid("* GenerateContentRequest.contents: contents is not specified\n");
        }
        Some(_) => return invalid("Invalid value at 'contents'"),
    };
    for (index, content) in contents.iter().enumerate() {
        check_content(index, content)?;
    }
    Ok(ValidatedBody { instructions, tools, contents, token })
}

fn known_fields(fields: &Map<String, Value>, known: &[&str], at: &str) -> Check {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let at = if at.is_empty() { String::new() } else { format!(" at '{at}'") };
            invalid(format!("Invalid JSON payload received. Unknown name \"{name}\"{at}: Cannot find field."))
        }
    }
}

fn object<'a>(value: &'a Value, at: &str) -> Result<&'a Map<String, Value>, Refusal> {
    value.as_object().ok_or_else(|| Refusal::invalid(format!("Invalid value at '{at}', expected an object")))
}

fn list<'a>(value: Option<&'a Value>, at: &str) -> Result<&'a [Value], Refusal> {
    match value {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => invalid(format!("Invalid value at '{at}', expected a list")),
    }
}

fn instructions(system: Option<&Value>) -> Result<Vec<String>, Refusal> {
    let Some(system) = system else { return Ok(Vec::new()) };
    let fields = object(system, "system_instruction")?;
    known_fields(fields, &["parts", "role"], "system_instruction")?;
    let text = |part: &Value| match part["text"].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => invalid("Only text is supported in system instructions."),
    };
    list(fields.get("parts"), "system_instruction.parts")?.iter().map(text).collect()
}

fn declarations(tools: Option<&Value>) -> Result<Vec<ToolDefinition>, Refusal> {
    let (mut all, mut names) = (Vec::new(), HashSet::new());
    for (tool_index, tool) in list(tools, "tools")?.iter().enumerate() {
        let tool = object(tool, "tools")?;
        let declarations = list(tool.get("functionDeclarations"), "function_declarations")?;
        for (index, declaration) in declarations.iter().enumerate() {
            let at = format!("tools[{tool_index}].function_declarations[{index}]");
            let fields = object(declaration, &at)?;
            known_fields(fields, &DECLARATION_FIELDS, &at)?;
            let name = declaration["name"].as_str().unwrap_or_default();
            if !is_wire_name(name) {
                return invalid(format!(
                    "* GenerateContentRequest.{at}.name: Invalid function name. Must start with a letter or an \
                     underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or \
                     dashes (-), with a maximum length of 128.\n"
                ));
            }
            if !names.insert(name.to_owned()) {
                return invalid(format!("Duplicate function declaration found: {name}"));
            }
            if fields.contains_key("parameters") && fields.contains_key("parametersJsonSchema") {
                return invalid(format!(
                    "{at}: parameters and parameters_json_schema are mutually exclusive."
                ));
            }
            let schema = fields.get("parametersJsonSchema").or(fields.get("parameters"));
            if schema.is_some_and(|schema| !schema["type"].as_str().is_some_and(is_object_type)) {
                return invalid(format!("{at}.parameters: schema should be of type OBJECT."));
            }
            all.push(ToolDefinition {
                name: name.to_owned(),
                description: declaration["description"].as_str().unwrap_or_default().to_owned(),
                input_schema: schema.cloned().unwrap_or_default(),
            });
        }
    }
    Ok(all)
}

const fn is_object_type(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("object")
}

fn check_tool_config(config: Option<&Value>, tools: &[ToolDefinition]) -> Check {
    let Some(config) = config.map(|config| &config["functionCallingConfig"]).filter(|it| !it.is_null())
    else {
        return Ok(());
    };
    if tools.is_empty() {
        return invalid("Function calling config is set without function_declarations.");
    }
    if config.get("mode").is_some_and(|mode| !mode.as_str().is_some_and(|mode| MODES.contains(&mode))) {
        return invalid("Invalid value at 'tool_config.function_calling_config.mode'");
    }
    let allowed = list(config.get("allowedFunctionNames"), "allowed_function_names")?;
    let is_known = |name: &Value| tools.iter().any(|tool| Some(tool.name.as_str()) == name.as_str());
    match allowed.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => invalid(format!("allowed_function_names: {name} is not a declared function.")),
    }
}

fn check_content(index: usize, content: &Value) -> Check {
    let at = format!("contents[{index}]");
    let fields = object(content, &at)?;
    known_fields(fields, &["role", "parts"], &at)?;
    let is_user = match content["role"].as_str() {
        None | Some("user") => true,
        Some("model") => false,
        Some(_) => return invalid("Please use a valid role: user, model."),
    };
    let parts = list(fields.get("parts"), &at)?;
    if parts.is_empty() {
        return invalid(format!("* GenerateContentRequest.{at}.parts: contents.parts must not be empty.\n"));
    }
    for (part_index, part) in parts.iter().enumerate() {
        check_part(&format!("{at}.parts[{part_index}]"), part, is_user)?;
    }
    Ok(())
}

fn check_part(at: &str, part: &Value, is_user: bool) -> Check {
    let fields = object(part, at)?;
    let is_known =
        |name: &String| PART_DATA.contains(&name.as_str()) || PART_MEMBERS.contains(&name.as_str());
    if let Some(name) = fields.keys().find(|name| !is_known(name)) {
        return invalid(format!(
            "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field."
        ));
    }
    let mut data = PART_DATA.into_iter().filter(|name| fields.contains_key(*name));
    let Some(kind) = data.next() else {
        return invalid(format!(
            "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field\n"
        ));
    };
    if let Some(other) = data.next() {
        return invalid(format!(
            "Invalid value at '{at}' (oneof), oneof field 'data' is already set. Cannot set '{other}'"
        ));
    }
    let is_wrong_role = match kind {
        "functionCall" => is_user,
        "functionResponse" => !is_user,
        _ => false,
    };
    if is_wrong_role {
        let role = if is_user { "user" } else { "model" };
        return invalid(format!("{at}: a part with `{kind}` is not allowed in the role '{role}'."));
    }
    let value = &part[kind];
    match kind {
        "text" if !value.is_string() => invalid(format!("Invalid value at '{at}.text' (TYPE_STRING)")),
        "inlineData" => check_blob(at, value),
        "functionCall" => check_call(at, value),
        "functionResponse" => check_response(at, value),
        _ => Ok(()),
    }
}

fn check_blob(at: &str, blob: &Value) -> Check {
    let fields = object(blob, at)?;
    known_fields(fields, &["mimeType", "data", "displayName"], at)?;
    if !blob["mimeType"].as_str().is_some_and(|kind| kind.contains('/')) {
        return invalid(format!("Unable to determine the mime type of {at}.inline_data."));
    }
    match blob["data"].as_str() {
        Some(data) if is_base64(data) => Ok(()),
        _ => {
            invalid(format!("Invalid value at '{at}.inline_data.data' (TYPE_BYTES), Base64 decoding failed"))
        }
    }
}

fn check_call(at: &str, call: &Value) -> Check {
    known_fields(object(call, at)?, &["id", "name", "args"], at)?;
    if !call["name"].as_str().is_some_and(is_wire_name) {
        return invalid(format!("* GenerateContentRequest.{at}.function_call.name: Name cannot be empty.\n"));
    }
    match call.get("args") {
        None | Some(Value::Object(_)) => Ok(()),
        Some(_) => invalid(format!("Invalid value at '{at}.function_call.args', expected an object")),
    }
}

fn check_response(at: &str, response: &Value) -> Check {
    let fields = object(response, at)?;
    known_fields(fields, &["id", "name", "response", "parts", "scheduling", "willContinue"], at)?;
    if !response["name"].as_str().is_some_and(is_wire_name) {
        return invalid(format!(
            "* GenerateContentRequest.{at}.function_response.name: Name cannot be empty.\n"
        ));
    }
    if !response["response"].is_object() {
        return invalid(format!("Invalid value at '{at}.function_response.response', expected an object"));
    }
    for part in list(response.get("parts"), at)? {
        known_fields(object(part, at)?, &["inlineData", "fileData"], at)?;
        if let Some(blob) = part.get("inlineData") {
            check_blob(at, blob)?;
        }
    }
    Ok(())
}

/// Whether this is base64 of either alphabet.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len() - body.len() <= 2
        && body.len() % 4 != 1
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'))
}
