//! The pure helpers for hosts that run a loop of their own (specification 5.10, 10).

use conjure_base::ContainerId;
use serde::Deserialize;

use crate::content::Block;
use crate::message::Message;
use crate::model::Response;
use crate::stop::{AfterAnswer, StopReason};
use crate::tool::{ToolCall, ToolResult};
use crate::usage::Usage;

/// A text that is no answer of the Messages API.
#[derive(Debug, thiserror::Error)]
#[error("not an answer of the Messages API: {0}")]
pub struct ParseError(#[from] serde_json::Error);

/// Reads the body of a Messages API response. Its content is kept byte for byte; fields that we do not know are
/// passed over.
///
/// # Errors
/// When it is not JSON, has no `content`, or a block in it is not one.
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
    })
}

/// The tool calls in an answer, in order. Whether they may run is another question: see
/// [`conversation_complete`].
#[must_use]
pub fn extract_tool_uses(response: &Response) -> Vec<ToolCall> {
    response.content.iter().filter_map(Block::tool_call).cloned().collect()
}

/// Whether the model is not to be called again after this answer: it is done, cut or refused. Where it is not,
/// the answer's tools are to be run, or the answer is to be sent back as it is.
#[must_use]
pub fn conversation_complete(response: &Response) -> bool {
    match response.stop_reason.consequence() {
        AfterAnswer::RunTools => !response.content.iter().any(|block| block.tool_call().is_some()),
        AfterAnswer::Resume => false,
        AfterAnswer::Stop | AfterAnswer::StopWithoutTools => true,
    }
}

/// The `tool_result` blocks of these results, in order.
#[must_use]
pub fn format_tool_results(results: &[ToolResult]) -> Vec<Block> {
    results.iter().map(Block::tool_result).collect()
}

/// The user message that hands in these results: all results of an answer belong into one.
#[must_use]
pub fn format_tool_results_message(results: &[ToolResult]) -> Message {
    Message::user(format_tool_results(results))
}
