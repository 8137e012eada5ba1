//! Pure helpers for embedders with their own loop (specification 5.10, 10).

use conjure_base::ContainerId;
use serde::Deserialize;

use crate::content::block::Block;
use crate::content::message::Message;
use crate::content::stop_reason::{AfterResponse, StopReason};
use crate::model::Response;
use crate::model::Usage;
use crate::tools::tool::{ToolCall, ToolResult};

/// A text that is not a response of the Messages API.
#[derive(Debug, thiserror::Error)]
#[error("not a response of the Messages API: {0}")]
pub struct ParseError(#[from] serde_json::Error);

/// Parses the body of a Messages API response. Its content is kept byte for byte; unknown fields are ignored.
///
/// # Errors
/// When the text is not JSON, has no `content`, or has an invalid block.
pub fn parse_response(json: &str) -> Result<Response, ParseError> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        model: Option<String>,
        content: Vec<Block>,
        #[serde(default)]
        stop_reason: Option<String>,
        #[serde(default)]
        usage: Option<Counts>,
        #[serde(default)]
        container: Option<Container>,
    }
    #[derive(Deserialize)]
    struct Container {
        id: ContainerId,
    }
    // The service writes `null` where it has no count.
    #[derive(Deserialize, Default)]
    struct Counts {
        input_tokens: Option<u64>,
        output_tokens: Option<u64>,
        cache_creation_input_tokens: Option<u64>,
        cache_read_input_tokens: Option<u64>,
    }
    let Body { id, model, content, stop_reason, usage, container } = serde_json::from_str(json)?;
    let counts = usage.unwrap_or_default();
    Ok(Response {
        id,
        model,
        content,
        stop_reason: StopReason::from(stop_reason),
        usage: Usage {
            input_tokens: counts.input_tokens.unwrap_or(0),
            output_tokens: counts.output_tokens.unwrap_or(0),
            cache_creation_input_tokens: counts.cache_creation_input_tokens.unwrap_or(0),
            cache_read_input_tokens: counts.cache_read_input_tokens.unwrap_or(0),
            cost_micros: 0,
        },
        request_id: None,
        container: container.map(|container| container.id),
        native: None,
    })
}

/// The tool calls in a response, in order. [`conversation_complete`] tells whether they may run.
#[must_use]
pub fn extract_tool_uses(response: &Response) -> Vec<ToolCall> {
    response.content.iter().filter_map(Block::tool_call).cloned().collect()
}

/// Whether the conversation is complete after this response: it ended, was truncated, or was a refusal.
///
/// Otherwise run the response's tools, or send the response back unchanged.
#[must_use]
pub fn conversation_complete(response: &Response) -> bool {
    match response.stop_reason.after_response() {
        AfterResponse::RunTools => !response.content.iter().any(|block| block.tool_call().is_some()),
        AfterResponse::Resume => false,
        AfterResponse::Stop | AfterResponse::StopWithoutTools => true,
    }
}

/// The `tool_result` blocks of these results, in order.
#[must_use]
pub fn format_tool_results(results: &[ToolResult]) -> Vec<Block> {
    results.iter().map(Block::tool_result).collect()
}

/// The user message with these results: all results of a response belong in one message.
#[must_use]
pub fn format_tool_results_message(results: &[ToolResult]) -> Message {
    Message::user(format_tool_results(results))
}
