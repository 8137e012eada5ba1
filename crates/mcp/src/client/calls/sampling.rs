//! Sampling: a server asks the session's model in the middle of a call. The protocol has deprecated it, and it is off by default.

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

/// Asks a model for a server. The embedder implements it.
pub trait Sampler: Send + Sync + fmt::Debug {
    /// Asks the model once.
    fn sample(&self, request: SamplingRequest) -> BoxFuture<'_, Result<Response, String>>;
}

/// What a server asks a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// The top-level instructions.
    pub instructions: Option<String>,
    /// The messages. Roles alternate; the first and the last message are the user's.
    pub messages: Vec<Arc<Message>>,
    /// The most tokens of the answer.
    pub max_tokens: u32,
    /// How random the answer is, from 0 to 1.
    pub temperature: Option<f64>,
    /// Texts that end the answer.
    pub stop_sequences: Vec<String>,
}

/// Asks the model.
///
/// # Errors
/// What is wrong with the request, or why the model did not answer, as text.
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

/// The messages, those of one role that follow each other as one.
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
