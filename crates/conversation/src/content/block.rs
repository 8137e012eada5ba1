//! A content block of a message, kept byte for byte.
//!
//! A block of the model is sent back unchanged: unknown blocks, signatures, number formats and the order of keys. So a block is its JSON
//! text, with a parsed view of the parts that the loop needs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use conjure_base::CallId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tools::tool::ToolCall;

/// A content block of the Messages API: its JSON, and the parsed part that the loop needs.
#[derive(Clone)]
pub struct Block {
    raw: Arc<RawValue>,
    kind: BlockKind,
}

/// The parsed part of a block. Blocks of other types are [`BlockKind::Other`] and are only passed on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BlockKind {
    /// `text`: text for the user.
    Text(String),
    /// `thinking`: the model's reasoning, readable but signed.
    Thinking(String),
    /// `tool_use`: a call that this library runs.
    ToolUse(ToolCall),
    /// `tool_result`: the result of the call with this id.
    ToolResult {
        /// The id of the `tool_use` block.
        tool_use_id: String,
        /// Whether the call failed.
        is_error: bool,
        /// The text of the result: its string, or its text blocks joined by newlines.
        text: String,
    },
    /// Any other block, by its `type`: images, redacted thinking, server-side tools, future types.
    Other(String),
}

/// A JSON value that is not a content block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a content block: {reason}")]
pub struct BlockError {
    reason: String,
}

impl Block {
    /// Parses a block from its JSON text, which is kept unchanged.
    ///
    /// # Errors
    /// When the text is not one JSON object with a `type`, or a `tool_use` lacks its `id`, `name` or `input`.
    pub fn from_json(text: impl Into<String>) -> Result<Self, BlockError> {
        let raw =
            RawValue::from_string(text.into()).map_err(|error| BlockError { reason: error.to_string() })?;
        Self::from_raw(raw)
    }

    /// Parses a block from raw JSON, which is kept unchanged.
    ///
    /// # Errors
    /// As [`Block::from_json`].
    pub fn from_raw(raw: Box<RawValue>) -> Result<Self, BlockError> {
        let kind = BlockKind::parse(raw.get())?;
        Ok(Self { raw: raw.into(), kind })
    }

    /// A `text` block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        let json = format!(r#"{{"type":"text","text":{}}}"#, Value::from(text.as_str()));
        Self { raw: raw_json(json), kind: BlockKind::Text(text) }
    }

    /// A `tool_use` block: a call of the tool `name` with this input.
    #[must_use]
    pub fn tool_use(id: impl Into<String>, name: impl Into<String>, input: &Value) -> Self {
        let call = ToolCall::new(id, name, input);
        let [id, name] = [call.id.as_str(), call.name.as_str()].map(Value::from);
        let json = format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{input}}}"#);
        Self { raw: raw_json(json), kind: BlockKind::ToolUse(call) }
    }

    /// The `tool_result` block of `result`.
    #[must_use]
    pub fn tool_result(result: &crate::ToolResult) -> Self {
        Self {
            raw: raw_json(result.to_json()),
            kind: BlockKind::ToolResult {
                tool_use_id: result.tool_use_id.as_str().to_owned(),
                is_error: result.is_error,
                text: result.visible_text(),
            },
        }
    }

    /// This `tool_use` block with another id. Only the text of the id changes. Any other block stays unchanged.
    pub(crate) fn with_call_id(&self, id: &CallId) -> Self {
        #[derive(Deserialize)]
        struct Id<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        let json = self.json();
        let BlockKind::ToolUse(call) = &self.kind else { return self.clone() };
        let new = Value::from(id.as_str()).to_string();
        let json = match serde_json::from_str::<Id<'_>>(json) {
            Ok(Id { id: old }) => {
                // The old id borrows from this text, so the distance of the addresses is its offset.
                let start = old.get().as_ptr() as usize - json.as_ptr() as usize;
                let end = start + old.get().len();
                format!("{}{new}{}", &json[..start], &json[end..])
            }
            // Only a block with two ids fails here. Its input still stays unchanged.
            Err(_) => format!(
                r#"{{"type":"tool_use","id":{new},"name":{},"input":{}}}"#,
                Value::from(call.name.as_str()),
                call.input.get()
            ),
        };
        let call = ToolCall { id: id.clone(), ..call.clone() };
        Self { raw: raw_json(json), kind: BlockKind::ToolUse(call) }
    }

    /// The block's JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        self.raw.get()
    }

    /// The parsed part.
    #[must_use]
    pub const fn kind(&self) -> &BlockKind {
        &self.kind
    }

    /// The call, if this is a `tool_use` block.
    #[must_use]
    pub const fn tool_call(&self) -> Option<&ToolCall> {
        match &self.kind {
            BlockKind::ToolUse(call) => Some(call),
            _ => None,
        }
    }
}

/// Converts JSON text that this file has written to a raw value.
#[expect(clippy::expect_used, reason = "the text was written by serde_json, so it is JSON")]
fn raw_json(json: String) -> Arc<RawValue> {
    RawValue::from_string(json).expect("written by serde_json").into()
}

impl BlockKind {
    /// Parses only the fields that it needs. Other fields may have values that no Rust type can hold, such as the number `1e400`.
    fn parse(json: &str) -> Result<Self, BlockError> {
        let error = |reason: String| BlockError { reason };
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(json)
            .map_err(|e| error(format!("it is not an object with named fields ({e})")))?;
        let text_of = |name: &str| {
            fields
                .get(name)
                .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
                .ok_or_else(|| error(format!("field `{name}` is missing or not a text")))
        };
        let value_of = |name: &str| fields.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok());
        Ok(match text_of("type")?.as_str() {
            "text" => Self::Text(text_of("text")?),
            "thinking" => Self::Thinking(text_of("thinking")?),
            "tool_use" => {
                let input =
                    fields.get("input").ok_or_else(|| error("field `input` is missing".to_owned()))?;
                let input = (*input).to_owned().into();
                Self::ToolUse(ToolCall { id: CallId::new(text_of("id")?), name: text_of("name")?, input })
            }
            "tool_result" => Self::ToolResult {
                tool_use_id: text_of("tool_use_id")?,
                is_error: value_of("is_error").as_ref().and_then(Value::as_bool).unwrap_or(false),
                text: result_text(value_of("content").as_ref()),
            },
            other => Self::Other(other.to_owned()),
        })
    }
}

/// The text of a result's `content`: a string, or the text blocks of an array.
fn result_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts: Vec<&str> =
                blocks.iter().filter_map(|b| b.get("text").and_then(Value::as_str)).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// Two blocks are equal when their JSON texts are equal.
impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.json() == other.json()
    }
}

impl Eq for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
