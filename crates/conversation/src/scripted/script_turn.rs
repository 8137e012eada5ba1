//! One turn of a script: the fields in the file, and the checked form.

use std::fmt;
use std::time::Duration;

use conjure_base::{ContainerId, Digest};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::content::block::{Block, BlockKind};
use crate::content::stop_reason::StopReason;
use crate::model::Usage;
use crate::model::{ApiErrorKind, ModelError, ModelErrorKind, Response};
use crate::state::limits::Limit;

use super::expectation::{Expectation, nullable};
use super::template::{RenderContext, Template, TemplateValue};

/// The maximum number of blocks in one turn.
const MAX_BLOCKS: usize = 1000;

/// The maximum number of pieces in which a text is streamed.
const MAX_PIECES: usize = 10_000;

/// The default number of pieces.
const DEFAULT_PIECES: usize = 4;

/// One model call of a script, in its checked form.
#[derive(Debug, Clone)]
pub(super) struct ScriptTurn {
    /// The expectations of the request.
    pub(super) expect: Expectation,
    /// The digest of the request that was sent when the turn was recorded.
    pub(super) sent: Option<Digest>,
    /// The delay before the response starts.
    pub(super) delay: Duration,
    /// The content of the response.
    pub(super) content: Vec<ScriptBlock>,
    /// Into how many pieces each text is split.
    pub(super) pieces: usize,
    /// How the stream ends.
    pub(super) end: StreamEnd,
    stop_reason: Option<StopReason>,
    usage: Usage,
    id: Option<String>,
    model: Option<String>,
    request_id: Option<String>,
    container: Option<ContainerId>,
}

/// How a turn's stream ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StreamEnd {
    /// With the complete response.
    Complete,
    /// Truncated after a number of pieces.
    Truncated {
        /// The number of pieces.
        after_pieces: usize,
    },
    /// With an error before the response starts.
    Failed(ModelError),
    /// With an error after a number of pieces.
    FailedMidway {
        /// The number of pieces.
        after_pieces: usize,
        /// The error.
        error: ModelError,
    },
}

/// One block of the content.
#[derive(Debug, Clone)]
pub(super) enum ScriptBlock {
    /// A text for the user.
    Text(Template),
    /// Reasoning.
    Thinking {
        /// The text.
        text: Template,
        /// The service's signature.
        signature: String,
    },
    /// A tool call.
    ToolUse {
        /// The call's id; the loader assigns one if the file has none.
        id: Option<String>,
        /// The tool's name on the wire.
        name: String,
        /// Its input.
        input: TemplateValue,
    },
    /// A block by its exact JSON text, without expressions.
    Raw(Block),
}

impl ScriptTurn {
    /// The response to a request. The error names the block that failed.
    pub(super) fn response(&self, context: &mut RenderContext<'_>) -> Result<Response, String> {
        let mut content = Vec::with_capacity(self.content.len());
        for (index, item) in self.content.iter().enumerate() {
            content.push(item.block(context).map_err(|reason| format!("content[{index}]: {reason}"))?);
        }
        let calls_tools = content.iter().any(|block| matches!(block.kind(), BlockKind::ToolUse(_)));
        let by_content = if calls_tools { StopReason::ToolUse } else { StopReason::EndTurn };
        Ok(Response {
            id: self.id.clone(),
            model: self.model.clone(),
            content,
            stop_reason: self.stop_reason.clone().unwrap_or(by_content),
            usage: self.usage,
            request_id: self.request_id.clone(),
            container: self.container.clone(),
            native: None,
        })
    }
}

impl ScriptBlock {
    fn block(&self, context: &mut RenderContext<'_>) -> Result<Block, String> {
        match self {
            Self::Text(text) => Ok(Block::text(text.render(context)?)),
            Self::Thinking { text, signature } => block_of(&format!(
                r#"{{"type":"thinking","thinking":{},"signature":{}}}"#,
                Value::from(text.render(context)?),
                Value::from(signature.as_str()),
            )),
            Self::ToolUse { id, name, input } => {
                let mut json = format!(
                    r#"{{"type":"tool_use","id":{},"name":{},"input":"#,
                    Value::from(id.as_deref().unwrap_or_default()),
                    Value::from(name.as_str()),
                );
                input.render(context, &mut json)?;
                json.push('}');
                block_of(&json)
            }
            Self::Raw(block) => Ok(block.clone()),
        }
    }
}

fn block_of(json: &str) -> Result<Block, String> {
    Block::from_json(json).map_err(|error| error.to_string())
}

/// The fields of a turn in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnFields {
    content: Option<Content>,
    #[serde(default, deserialize_with = "nullable")]
    stop_reason: Option<Option<String>>,
    #[serde(default)]
    usage: UsageFields,
    error: Option<ErrorFields>,
    #[serde(default)]
    delay_ms: u64,
    cut_after: Option<usize>,
    pieces: Option<usize>,
    #[serde(default)]
    expect: Expectation,
    sent: Option<Digest>,
    id: Option<String>,
    model: Option<String>,
    request_id: Option<String>,
    container: Option<ContainerId>,
}

impl TryFrom<TurnFields> for ScriptTurn {
    type Error = String;

    fn try_from(fields: TurnFields) -> Result<Self, String> {
        let ending = match (fields.error, fields.cut_after) {
            (Some(_), Some(_)) => {
                return Err("`error` and `cut_after` exclude each other; keep one of them".to_owned());
            }
            (None, Some(after_pieces)) => StreamEnd::Truncated { after_pieces },
            (None, None) if fields.content.is_none() => {
                return Err("a turn needs `content` or `error`; `content: []` is an empty answer".to_owned());
            }
            (None, None) => StreamEnd::Complete,
            (Some(error), None) => match error.after_pieces {
                Some(after_pieces) => StreamEnd::FailedMidway { after_pieces, error: error.into_error()? },
                None if fields.content.is_some() => {
                    return Err("an `error` without `after_pieces` comes before any content; add \
                                `after_pieces`, or leave `content` out"
                        .to_owned());
                }
                None => StreamEnd::Failed(error.into_error()?),
            },
        };
        let pieces = fields.pieces.unwrap_or(DEFAULT_PIECES);
        if !(1..=MAX_PIECES).contains(&pieces) {
            return Err(format!("`pieces` must lie between 1 and {MAX_PIECES}, and is {pieces}"));
        }
        Ok(Self {
            expect: fields.expect,
            sent: fields.sent,
            delay: Duration::from_millis(fields.delay_ms),
            content: fields.content.map(|content| content.0).unwrap_or_default(),
            pieces,
            end: ending,
            stop_reason: fields.stop_reason.map(StopReason::from),
            usage: fields.usage.into(),
            id: fields.id,
            model: fields.model,
            request_id: fields.request_id,
            container: fields.container,
        })
    }
}

/// The visitor checks the turn, so that the error has the line of the turn and not of the list.
impl<'de> Deserialize<'de> for ScriptTurn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TurnVisitor;
        impl<'de> Visitor<'de> for TurnVisitor {
            type Value = ScriptTurn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a turn with `content` or `error`")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScriptTurn, A::Error> {
                let fields = TurnFields::deserialize(MapAccessDeserializer::new(map))?;
                ScriptTurn::try_from(fields).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_map(TurnVisitor)
    }
}

/// A list of blocks, or one text.
struct Content(Vec<ScriptBlock>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                text_block(text).map(|item| Content(vec![item]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MAX_BLOCKS {
                        return Err(de::Error::custom(format!(
                            "a turn may have {MAX_BLOCKS} blocks at most"
                        )));
                    }
                    items.push(item);
                }
                Ok(Content(items))
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// A text block. It must not be empty, as services send no empty ones.
fn text_block<E: de::Error>(text: &str) -> Result<ScriptBlock, E> {
    non_empty_text(Template::parse(text).map_err(E::custom)?).map_err(E::custom)
}

fn non_empty_text(text: Template) -> Result<ScriptBlock, String> {
    if text.is_empty() {
        return Err("a text must not be empty; write it as `raw` if that is what you test".to_owned());
    }
    Ok(ScriptBlock::Text(text))
}

impl<'de> Deserialize<'de> for ScriptBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = ScriptBlock;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or one of `text`, `thinking`, `tool_use` and `raw`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ScriptBlock, E> {
                text_block(text)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScriptBlock, A::Error> {
                let fields = BlockFields::deserialize(MapAccessDeserializer::new(map))?;
                ScriptBlock::try_from(fields).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockFields {
    text: Option<Template>,
    thinking: Option<Template>,
    signature: Option<String>,
    tool_use: Option<ToolUseFields>,
    raw: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolUseFields {
    name: String,
    input: Option<TemplateValue>,
    id: Option<String>,
}

impl TryFrom<BlockFields> for ScriptBlock {
    type Error = String;

    fn try_from(fields: BlockFields) -> Result<Self, String> {
        match fields {
            BlockFields { text: Some(text), thinking: None, signature: None, tool_use: None, raw: None } => {
                non_empty_text(text)
            }
            BlockFields { text: None, thinking: Some(text), signature, tool_use: None, raw: None } => {
                Ok(Self::Thinking { text, signature: signature.unwrap_or_else(|| "scripted".to_owned()) })
            }
            BlockFields { text: None, thinking: None, signature: None, tool_use: Some(call), raw: None } => {
                if call.name.is_empty() || call.id.as_deref() == Some("") {
                    return Err("`name` and `id` of a tool call must not be empty".to_owned());
                }
                let input = call.input.unwrap_or(TemplateValue::Object(Vec::new()));
                Ok(Self::ToolUse { id: call.id, name: call.name, input })
            }
            BlockFields { text: None, thinking: None, signature: None, tool_use: None, raw: Some(json) } => {
                Ok(Self::Raw(block_of(&json).map_err(|error| format!("`raw` is {error}"))?))
            }
            _ => Err("a block has exactly one of `text`, `thinking` (with its `signature`), `tool_use` \
                      and `raw`"
                .to_owned()),
        }
    }
}

/// Like [`Usage`], but it refuses unknown fields.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UsageFields {
    input_tokens: u64,
    output_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    cost_micros: u64,
}

impl From<UsageFields> for Usage {
    fn from(fields: UsageFields) -> Self {
        Self {
            input_tokens: fields.input_tokens,
            output_tokens: fields.output_tokens,
            cache_creation_input_tokens: fields.cache_creation_input_tokens,
            cache_read_input_tokens: fields.cache_read_input_tokens,
            cost_micros: fields.cost_micros,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorFields {
    r#type: String,
    message: Option<String>,
    retry_after_ms: Option<u64>,
    after_pieces: Option<usize>,
    request_id: Option<String>,
}

impl ErrorFields {
    fn into_error(self) -> Result<ModelError, String> {
        let kind = error_kind(&self.r#type)?;
        let message = self.message.unwrap_or_else(|| format!("a scripted failure ({})", self.r#type));
        Ok(ModelError {
            retry_after: self.retry_after_ms.map(Duration::from_millis),
            request_id: self.request_id,
            ..ModelError::new(kind, message)
        })
    }
}

/// The prefix of an error type that this version does not know. Without it a misspelt type would be accepted.
const UNKNOWN: &str = "unknown:";

/// The class of failure that an error's `type` names.
fn error_kind(name: &str) -> Result<ModelErrorKind, String> {
    if let Some(unknown) = name.strip_prefix(UNKNOWN) {
        return Ok(ModelErrorKind::Api(ApiErrorKind::Unknown(unknown.to_owned())));
    }
    Ok(match (name, ApiErrorKind::from(name.to_owned())) {
        ("connection", _) => ModelErrorKind::Connection,
        ("truncated", _) => ModelErrorKind::Truncated,
        ("protocol", _) => ModelErrorKind::Protocol,
        ("timeout", _) => ModelErrorKind::Timeout,
        ("overloaded", _) => ModelErrorKind::Overloaded,
        ("container_gone", _) => ModelErrorKind::ContainerGone,
        ("script", _) => ModelErrorKind::Script,
        ("outcome_unknown", _) => ModelErrorKind::OutcomeUnknown,
        ("tenant_tokens", _) => ModelErrorKind::Exhausted(Limit::TenantTokens),
        ("tenant_cost", _) => ModelErrorKind::Exhausted(Limit::TenantCost),
        (_, ApiErrorKind::Unknown(_)) => {
            return Err(format!(
                "`{name}` is not a type of error; use one of the service (`overloaded_error`, \
                 `rate_limit_error`, `invalid_request_error`, …), or `connection`, `truncated`, `protocol`, \
                 `timeout`, `overloaded`, `container_gone`, `script`, `outcome_unknown`, `tenant_tokens`, `tenant_cost`, or `{UNKNOWN}NAME`"
            ));
        }
        (_, known) => ModelErrorKind::Api(known),
    })
}

/// The `type` of this class of failure in a script: the inverse of [`error_kind`].
pub(super) fn error_type(kind: &ModelErrorKind) -> String {
    match kind {
        ModelErrorKind::Connection => "connection".to_owned(),
        ModelErrorKind::Truncated => "truncated".to_owned(),
        ModelErrorKind::Protocol => "protocol".to_owned(),
        ModelErrorKind::Timeout => "timeout".to_owned(),
        ModelErrorKind::Overloaded => "overloaded".to_owned(),
        ModelErrorKind::ContainerGone => "container_gone".to_owned(),
        ModelErrorKind::Script => "script".to_owned(),
        ModelErrorKind::OutcomeUnknown => "outcome_unknown".to_owned(),
        ModelErrorKind::Exhausted(Limit::TenantCost) => "tenant_cost".to_owned(),
        ModelErrorKind::Exhausted(_) => "tenant_tokens".to_owned(),
        ModelErrorKind::Api(ApiErrorKind::Unknown(name)) => format!("{UNKNOWN}{name}"),
        ModelErrorKind::Api(known) => known.clone().into(),
    }
}
