//! Sampling: a server sends a request to the session's model during a call. The protocol has deprecated it, and it is off by default.

use std::fmt;
use std::sync::Arc;

use conjure_conversation::{Block, Message, Response, StopReason};
use futures_util::future::BoxFuture;
#[expect(deprecated, reason = "older servers use it")]
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, SamplingMessage, SamplingMessageContentBlock,
};
use rmcp::model::{Role, TextContent};
use serde_json::json;

/// Sends a server's requests to a model. The embedder implements it.
pub trait Sampler: Send + Sync + fmt::Debug {
    /// Sends one request to the model. An error is text for the server.
    fn sample(&self, request: SamplingRequest) -> BoxFuture<'_, Result<Response, String>>;
}

/// A server's request to a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// The system prompt.
    pub instructions: Option<String>,
    /// The messages. Roles alternate, and the first and the last message are the user's.
    pub messages: Vec<Arc<Message>>,
    /// The maximum number of tokens of the response.
    pub max_tokens: u32,
    /// The sampling temperature, from 0 to 1.
    pub temperature: Option<f64>,
    /// The stop sequences.
    pub stop_sequences: Vec<String>,
}

/// Converts a server's request, sends it to the model, and converts the response.
///
/// # Errors
/// The reason why the request is refused, or why the model did not respond, as text.
#[expect(deprecated, reason = "older servers use it")]
pub(in crate::client) async fn sample(
    sampler: &dyn Sampler,
    params: CreateMessageRequestParams,
) -> Result<CreateMessageResult, String> {
    if params.tools.is_some_and(|tools| !tools.is_empty()) {
        return Err("the model is asked without tools here".to_owned());
    }
    let request = SamplingRequest {
        instructions: params.system_prompt,
        messages: messages(params.messages)?,
        max_tokens: params.max_tokens,
        temperature: params.temperature.map(f64::from),
        stop_sequences: params.stop_sequences.unwrap_or_default(),
    };
    let response = sampler.sample(request).await?;
    let message = Message::assistant(response.content);
    let message = SamplingMessage::assistant_text(message.text());
    let reason = match response.stop_reason {
        StopReason::MaxTokens => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
        StopReason::StopSequence => CreateMessageResult::STOP_REASON_END_SEQUENCE,
        _ => CreateMessageResult::STOP_REASON_END_TURN,
    };
    let model = response.model.unwrap_or_else(|| "unknown".to_owned());
    Ok(CreateMessageResult::new(message, model).with_stop_reason(reason))
}

/// Converts the messages. Consecutive messages of one role become one message.
#[expect(deprecated, reason = "older servers use it")]
fn messages(of_server: Vec<SamplingMessage>) -> Result<Vec<Arc<Message>>, String> {
    let mut messages: Vec<(Role, Vec<Block>)> = Vec::new();
    for message in of_server {
        let blocks = message.content.into_vec().into_iter().map(block).collect::<Result<Vec<_>, _>>()?;
        match messages.last_mut() {
            Some((role, before)) if *role == message.role => before.extend(blocks),
            _ => messages.push((message.role, blocks)),
        }
    }
    messages.retain(|(_, blocks)| !blocks.is_empty());
    let is_user = |message: Option<&(Role, Vec<Block>)>| message.is_some_and(|(role, _)| *role == Role::User);
    if !is_user(messages.first()) || !is_user(messages.last()) {
        return Err("the first and the last message must be the user's".to_owned());
    }
    let message = |(role, blocks)| match role {
        Role::User => Message::user(blocks),
        Role::Assistant => Message::assistant(blocks),
    };
    Ok(messages.into_iter().map(|parts| Arc::new(message(parts))).collect())
}

#[expect(deprecated, reason = "older servers use it")]
fn block(block: SamplingMessageContentBlock) -> Result<Block, String> {
    match block {
        SamplingMessageContentBlock::Text(TextContent { text, .. }) => Ok(Block::text(text)),
        SamplingMessageContentBlock::Image(image) => {
            let source = json!({"type": "base64", "media_type": image.mime_type, "data": image.data});
            Block::from_json(json!({"type": "image", "source": source}).to_string())
                .map_err(|error| format!("an image cannot be used: {error}"))
        }
        _ => Err("the model is asked with texts and images alone".to_owned()),
    }
}
