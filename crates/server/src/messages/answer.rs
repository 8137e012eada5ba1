//! Converts a model's response to a message of the Messages API.

use conjure_api::MessageId;
use conjure_conversation::{Block, BlockKind, Response, StopReason, Usage};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::http::ApiError;

/// The answer to one request: its id, and the model's name as the client wrote it.
#[derive(Debug, Clone)]
pub(crate) struct MessageAnswer {
    id: MessageId,
    model: String,
}

/// A part of an answer that the client receives. Thinking is left out, because no request asks such a model for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerBlock {
    Text(String),
    ToolUse { id: String, name: String, input: String },
}

impl MessageAnswer {
    /// A new answer with this name of the model.
    pub(crate) fn new(model: String) -> Result<Self, ApiError> {
        let id = MessageId::random().map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(Self { id, model })
    }

    /// The complete message.
    pub(crate) fn complete(&self, response: &Response) -> Value {
        let content: Vec<Value> = answer_blocks(&response.content).map(|block| block.complete()).collect();
        self.message(content, Value::from(stop_reason(&response.stop_reason)), &response.usage)
    }

    /// The message at the start of a stream.
    pub(super) fn start(&self, usage: &Usage) -> Value {
        self.message(Vec::new(), Value::Null, usage)
    }

    fn message(&self, content: Vec<Value>, stop_reason: Value, usage: &Usage) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": usage_json(usage),
        })
    }
}

/// The parts that the client receives, in order.
pub(super) fn answer_blocks(content: &[Block]) -> impl Iterator<Item = AnswerBlock> {
    content.iter().filter_map(|block| match block.kind() {
        BlockKind::Text(text) if !text.trim().is_empty() => Some(AnswerBlock::Text(text.clone())),
        BlockKind::ToolUse(call) => Some(AnswerBlock::ToolUse {
            id: call.id.to_string(),
            name: call.name.clone(),
            input: object(&call.input),
        }),
        _ => None,
    })
}

/// The input as an object. The API cannot represent any other value that a model may have written.
fn object(input: &RawValue) -> String {
    if input.get().trim_start().starts_with('{') { input.get().to_owned() } else { "{}".to_owned() }
}

impl AnswerBlock {
    /// The complete block.
    fn complete(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text, "citations": null}),
            Self::ToolUse { id, name, input } => {
                let input: Value = serde_json::from_str(input).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        }
    }

    /// The block at its start.
    pub(super) fn start(&self) -> Value {
        match self {
            Self::Text(_) => json!({"type": "text", "text": "", "citations": null}),
            Self::ToolUse { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        }
    }

    /// The content of the block, as one delta.
    pub(super) fn delta(&self) -> Value {
        match self {
            Self::Text(text) => text_delta(text),
            Self::ToolUse { input, .. } => json!({"type": "input_json_delta", "partial_json": input}),
        }
    }
}

/// A delta with a part of a text.
pub(super) fn text_delta(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

/// The stop reason. The API and the library use the same words.
pub(super) fn stop_reason(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::ContextWindowExceeded => "model_context_window_exceeded",
        StopReason::Refusal => "refusal",
        StopReason::StopSequence => "stop_sequence",
        StopReason::PauseTurn => "pause_turn",
        _ => "end_turn",
    }
}

pub(super) fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
    })
}
