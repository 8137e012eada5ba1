//! The body of `POST /v1/messages`: the part that is needed to pass it on, and the complete body for a model behind another API.

use serde_json::value::RawValue;

use crate::common::input::{Input, ObjectInput};
use crate::messages::message_options::MessageOptions;
use crate::{RequestBody, RequestError};

const MAX_MESSAGES: usize = 100_000;
const MAX_BLOCKS: usize = 100_000;
const MAX_TOOLS: usize = 1_000;
const MAX_NAME: usize = 128;

/// The block types that can be translated for a model behind another API.
const BLOCKS: [(&str, ()); 8] = [
    ("text", ()),
    ("image", ()),
    ("document", ()),
    ("search_result", ()),
    ("tool_use", ()),
    ("tool_result", ()),
    ("thinking", ()),
    ("redacted_thinking", ()),
];

/// Fields that do not change the answer.
const WITHOUT_EFFECT: [&str; 6] =
    ["cache_control", "context_management", "diagnostics", "metadata", "service_tier", "thinking"];

/// Fields that cannot be translated for a model behind another API.
const UNSUPPORTED: [&str; 5] =
    ["container", "inference_geo", "mcp_servers", "user_profile_id", "workspace_id"];

/// The part of a request that is needed to pass it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHead {
    /// The model that the client names.
    pub model: String,
}

/// A request that is translated for a model behind another API.
#[derive(Debug, Clone)]
pub struct MessageCreate {
    /// The maximum number of output tokens.
    pub max_tokens: u32,
    /// The messages. The first and the last are from the user.
    pub messages: Vec<MessageInput>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// The settings for the answer.
    pub options: MessageOptions,
    /// The instructions.
    pub system: Vec<String>,
    /// The tools that the client runs.
    pub tools: Vec<MessageTool>,
}

/// A message of such a request.
#[derive(Debug, Clone)]
pub struct MessageInput {
    /// The sender.
    pub role: MessageRole,
    /// Its blocks, as the client wrote them.
    pub content: Vec<Box<RawValue>>,
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageRole {
    /// The user. Tool results have this role too.
    User,
    /// The model.
    Assistant,
}

/// A tool of such a request.
#[derive(Debug, Clone)]
pub struct MessageTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Box<RawValue>,
}

impl MessageHead {
    /// Reads the part that is needed to pass the request on. The service validates the rest.
    ///
    /// # Errors
    /// If the body is not a JSON object or names no model.
    pub fn from_json(body: &[u8]) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        Ok(Self { model: object.required("model")?.text(1..=256)? })
    }
}

impl RequestBody for MessageCreate {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        object.required("model")?.text(1..=256)?;
        for name in WITHOUT_EFFECT {
            object.take(name);
        }
        for name in UNSUPPORTED {
            object.unsupported(name, &format!("`{name}` for models that do not use the Messages API"))?;
        }
        if let Some(speed) = object.optional("speed") {
            speed.one_of(&[("standard", ())])?;
        }
        let max_tokens = object.required("max_tokens")?.integer(1..=u64::from(u32::MAX))?;
        Ok(Self {
            max_tokens: u32::try_from(max_tokens).unwrap_or(u32::MAX),
            options: MessageOptions::read(object)?,
            stream: object.optional("stream").map_or(Ok(false), |stream| stream.boolean())?,
            system: object.optional("system").map_or(Ok(Vec::new()), read_system)?,
            tools: match object.optional("tools") {
                None => Vec::new(),
                Some(tools) => {
                    tools.array("tools", MAX_TOOLS)?.into_iter().map(read_tool).collect::<Result<_, _>>()?
                }
            },
            messages: read_messages(object.required("messages")?)?,
        })
    }
}

fn read_system(input: Input<'_>) -> Result<Vec<String>, RequestError> {
    if input.is_string() {
        return Ok(vec![input.string()?]);
    }
    let blocks = input.array("blocks", MAX_BLOCKS)?.into_iter();
    let text = |block: Input<'_>| {
        let mut object = block.object()?;
        object.kind(&[("text", ())])?;
        object.take("cache_control");
        object.take("citations");
        let text = object.required("text")?.string()?;
        object.finish()?;
        Ok(text)
    };
    blocks.map(text).collect()
}

fn read_tool(input: Input<'_>) -> Result<MessageTool, RequestError> {
    let path = input.path().to_owned();
    let mut object = input.object()?;
    if let Some(kind) = object.optional("type").map(|kind| kind.string()).transpose()?
        && kind != "custom"
    {
        let what = format!("the tool `{kind}` for models that do not use the Messages API");
        return Err(RequestError::unsupported(path, &what));
    }
    // None of these fields changes the translated request.
    for name in ["cache_control", "defer_loading", "eager_input_streaming"] {
        object.take(name);
    }
    let schema = object.required("input_schema")?;
    let input_schema = schema.verbatim()?;
    schema.object()?;
    let tool = MessageTool {
        name: object.required("name")?.text(1..=MAX_NAME)?,
        description: object.optional("description").map_or(Ok(String::new()), |text| text.string())?,
        input_schema,
    };
    object.finish()?;
    Ok(tool)
}

fn read_messages(input: Input<'_>) -> Result<Vec<MessageInput>, RequestError> {
    let path = input.path().to_owned();
    let mut messages: Vec<MessageInput> = Vec::new();
    for message in input.array("messages", MAX_MESSAGES)? {
        let mut object = message.object()?;
        let role = object
            .required("role")?
            .one_of(&[("user", MessageRole::User), ("assistant", MessageRole::Assistant)])?;
        let content = read_content(object.required("content")?)?;
        object.finish()?;
        match messages.last_mut() {
            // As in the Messages API, consecutive messages of one role are joined.
            Some(last) if last.role == role => last.content.extend(content),
            _ => messages.push(MessageInput { role, content }),
        }
    }
    let ends = [messages.first(), messages.last()];
    if ends.into_iter().any(|message| message.is_none_or(|message| message.role != MessageRole::User)) {
        return Err(RequestError::new(
            path,
            "the first and the last message must be the user's; a model with another API cannot continue an answer",
        ));
    }
    Ok(messages)
}

fn read_content(input: Input<'_>) -> Result<Vec<Box<RawValue>>, RequestError> {
    if input.is_string() {
        let text = input.verbatim()?;
        let block = RawValue::from_string(format!(r#"{{"type":"text","text":{text}}}"#));
        return block.map(|block| vec![block]).map_err(|error| input.error(error.to_string()));
    }
    let path = input.path().to_owned();
    let blocks = input.array("blocks", MAX_BLOCKS)?;
    if blocks.is_empty() {
        return Err(RequestError::new(path, "the content is empty; give at least one block"));
    }
    let read = |block: Input<'_>| {
        let raw = block.verbatim()?;
        block.object()?.kind(&BLOCKS)?;
        Ok(raw)
    };
    blocks.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<MessageCreate, String> {
        MessageCreate::from_json(body.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn consecutive_messages_of_one_role_are_merged() {
        let create = read(
            r#"{"model":"m","max_tokens":9,"stream":true,"system":"S","tool_choice":{"type":"auto"},"metadata":{"user_id":"u"},
            "tools":[{"name":"t","description":"d","input_schema":{"type":"object","b":1,"a":2}}],
            "messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]}"#,
        )
        .unwrap();
        assert_eq!((create.max_tokens, create.stream, create.system.len()), (9, true, 1));
        assert_eq!(
            create.messages.iter().map(|message| message.content.len()).collect::<Vec<_>>(),
            [2, 1, 1]
        );
        assert_eq!(create.messages[0].content[0].get(), r#"{"type":"text","text":"a"}"#);
        assert_eq!(create.tools[0].input_schema.get(), r#"{"type":"object","b":1,"a":2}"#);
    }

    #[test]
    fn vendor_specific_hints_are_ignored() {
        let body = r#"{"model":"m","max_tokens":9,"thinking":{"type":"adaptive"},"context_management":{"edits":[]},
            "tools":[{"name":"t","input_schema":{"type":"object"},"defer_loading":true}],
            "messages":[{"role":"user","content":"a"}]}"#;
        assert_eq!(read(body).unwrap().tools.len(), 1);
    }

    #[test]
    fn fields_unsupported_by_another_api_are_named() {
        let with = |more: &str| {
            read(&format!(
                r#"{{"model":"m","max_tokens":1,{more},"messages":[{{"role":"user","content":"a"}}]}}"#
            ))
            .unwrap_err()
        };
        assert!(
            with(r#""container":"c""#).starts_with("container: this server does not support `container`")
        );
        assert!(
            with(r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#).starts_with("tools.0: ")
        );
        assert!(with(r#""colour":1"#).starts_with("colour: the field is unknown"));
        let prefilled = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
        assert!(read(prefilled).unwrap_err().starts_with("messages: the first and the last"));
        let empty = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[]}]}"#;
        assert!(read(empty).unwrap_err().starts_with("messages.0.content: the content is empty"));
    }
}
